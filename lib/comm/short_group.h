// ShortGroup: the sends and receives of a thread's open group, as long as all are short, and of one
// communicator, and nothing else is in the group. Its end carries them out as they are, or makes
// usual calls of them. Groups are often alike: so it remembers the calls of the last one.
#pragma once

#include "lib/base/flight.h"
#include "lib/call/buffer_address.h"
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
  // Set when they are carried out, for so many of them.
  std::uint32_t max_slots = 0;  // of each message
  ShortFlight flight;           // of all
  std::size_t prepared_count = 0;

  // The calls of the last group that began like this one.
  std::array<KnownTransfer, max_transfers> known;
  std::size_t known_count = 0;
  bool is_known = false;  // all so far

  // All calls are those of a group that was prepared, but for their buffers.
  bool is_repeated() const { return is_known && count == prepared_count; }
  std::span<const Transfer> all() const { return {transfers.data(), count}; }
  bool takes(std::uint64_t of_handle) const {
    return count == 0 || (handle == of_handle && count < max_transfers);
  }
  // Of a call that is checked.
  void add(std::uint64_t of_handle, const TransferCall& call, const Transfer& transfer) {
    handle = of_handle;
    is_known = false;
    prepared_count = 0;
    known[count] = {call, transfer, last_address(transfer.bytes)};
    known_count = count + 1;
    transfers[count++] = transfer;
  }
  // Of one that is not checked. False: it is none of the last group.
  bool add_again(std::uint64_t of_handle, const TransferCall& call) {
    if (count >= known_count || handle != of_handle) return false;
    const KnownTransfer& like = known[count];
    if (!like.takes(call, call.sends ? call.send : call.receive)) return false;
    is_known = count == 0 || is_known;
    Transfer& transfer = transfers[count++];
    transfer = like.transfer;
    transfer.input = static_cast<const std::byte*>(call.send);
    transfer.output = static_cast<std::byte*>(call.receive);
    transfer.source = call.source;
    transfer.received_tag = call.received_tag;
    return true;
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
