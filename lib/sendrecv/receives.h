// Receives: a communicator's unfinished receives. It keeps in order those that no message has
// reached yet, and knows which peers still owe a message.
#pragma once

#include "lib/sendrecv/batch.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace gyre::comm {

class Receives {
 public:
  void add(const PendingTransfer& receive);
  // The first that takes a message with that tag from that peer; its message has come.
  std::optional<PendingTransfer> take(int peer, int tag);
  // Its message is whole.
  void finish(const PendingTransfer& receive);
  // Whether a receive that is not finished may take from the peer, or has to.
  bool await(int peer) const { return from_anyone() || depend_on(peer); }
  bool depend_on(int peer) const;
  bool none_unfinished() const { return peers_.empty() && !from_anyone(); }
  bool from_anyone() const { return from_anyone_.unfinished > 0; }
  // On whom they depend, in any order.
  const std::vector<int>& peers() const { return peers_; }
  // An error has ended its batch.
  void forget(const Batch& batch);

 private:
  struct NumberedReceive {
    std::uint64_t number;
    PendingTransfer receive;
  };
  struct ReceiveQueue {
    std::deque<NumberedReceive> open;
    std::size_t unfinished = 0;
  };
  using ReceiveIterator = std::deque<NumberedReceive>::iterator;
  static ReceiveIterator first_taking(ReceiveQueue& line, int peer, int tag);
  static void forget(const Batch& batch, ReceiveQueue& line);
  ReceiveQueue& line_of(int peer) { return peer == any_source ? from_anyone_ : lines_[peer]; }

  std::map<int, ReceiveQueue> lines_;  // by peer, from its first receive on
  ReceiveQueue from_anyone_;
  std::vector<int> peers_;
  std::uint64_t begun_ = 0;
};

}  // namespace gyre::comm
