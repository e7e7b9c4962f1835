// Batch: sends and receives that were begun together and end together, and their progress.
#pragma once

#include "lib/call/transfer.h"

#include <cstddef>
#include <span>
#include <vector>

namespace gyre::comm {

class Batch {
 public:
  Batch() = default;
  // Others point to it.
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // They stay where they are until it is over.
  void begin(std::span<const Transfer> transfers) {
    transfers_ = transfers;
    is_settled_.assign(transfers.size(), false);
    open_ = transfers.size();
    leaving_ = 0;
  }
  // A receive has its message; a send has its last byte in a slot, and has to leave from there.
  void settle(const Transfer& one) {
    is_settled_[static_cast<std::size_t>(&one - transfers_.data())] = true;
    --open_;
    leaving_ += one.sends ? 1 : 0;
  }
  // A send has left this process.
  void leave() { --leaving_; }

  std::span<const Transfer> transfers() const { return transfers_; }
  bool is_done() const { return open_ == 0 && leaving_ == 0; }
  std::size_t open() const { return open_; }
  // What is not settled: the first receive, else the first send; null: nothing.
  const Transfer* first_open() const {
    const Transfer* send = nullptr;
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      if (is_settled_[i]) continue;
      if (!transfers_[i].sends) return &transfers_[i];
      if (send == nullptr) send = &transfers_[i];
    }
    return send;
  }

 private:
  std::span<const Transfer> transfers_;
  std::vector<bool> is_settled_;
  std::size_t open_ = 0;
  std::size_t leaving_ = 0;
};

// One of them.
struct PendingTransfer {
  const Transfer* transfer = nullptr;
  Batch* batch = nullptr;
};

}  // namespace gyre::comm
