// ShortGroup: the sends and receives of a thread's open group, as long as all are short, and of one
// communicator, and nothing else is in the group. Its end carries them out as they are, or makes
// usual calls of them.
#pragma once

#include "lib/call/transfer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre::comm {

struct ShortGroup {
  static constexpr std::size_t max_transfers = 16;

  std::uint64_t handle = 0;  // of the communicator
  std::size_t count = 0;
  std::array<Transfer, max_transfers> transfers;
  std::uint32_t max_slots = 0;  // of each message; set when they are carried out

  std::span<const Transfer> all() const { return {transfers.data(), count}; }
  bool takes(std::uint64_t of_handle) const {
    return count == 0 || (handle == of_handle && count < max_transfers);
  }
  void add(std::uint64_t of_handle, const Transfer& transfer) {
    handle = of_handle;
    transfers[count++] = transfer;
  }
  // Calls it with each in order, and forgets those of which it says true.
  template <typename IsOver>
  void forget_if(const IsOver& is_over) {
    std::size_t left = 0;
    for (std::size_t i = 0; i < count; ++i)
      if (!is_over(transfers[i])) {
        if (left != i) transfers[left] = transfers[i];
        ++left;
      }
    count = left;
  }
};

}  // namespace gyre::comm
