// Mailbox: what one peer sends to this rank, message after message: straight into the buffer of the
// receive that takes it, or kept until one does. It outlives the calls; a message that is half here
// at the end of one goes on in the next.
#pragma once

#include "lib/base/status.h"
#include "lib/comm/transfer.h"
#include "lib/exec/port.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace gyre::comm {

// A receive that is to be done, or in its way.
struct PendingReceive {
  const Transfer* transfer = nullptr;
  bool taken = false;  // a message was found for it
  bool done = false;
};
// Messages point to what takes them, so it keeps its place.
using PendingReceiveRef = std::unique_ptr<PendingReceive>;

class Mailbox {
 public:
  Mailbox(int peer, exec::ReceivePort& port) : peer_(peer), port_(port) {}

  // Takes what is here, for the receives in their order. `kept` counts the bytes that are kept in
  // all mailboxes. The error names the peer and both calls.
  Status advance(std::span<const PendingReceiveRef> receives, bool& moved, std::uint64_t& kept);
  exec::ReceivePort& port() { return port_; }

 private:
  struct Message {
    TransferHead head;
    std::uint64_t here = 0;             // bytes of it
    PendingReceive* receive = nullptr;  // else kept
    std::byte* place = nullptr;
    std::vector<std::byte> kept;
  };
  Status give_kept(std::span<const PendingReceiveRef> receives, bool& moved, std::uint64_t& kept);
  Status begin(std::span<const PendingReceiveRef> receives, std::uint64_t& kept,
               std::uint64_t slot_bytes);
  Status take(Message& message, PendingReceive& receive) const;
  void finish(Message& message) const;
  bool is_wanted(std::span<const PendingReceiveRef> receives) const;

  const int peer_;
  exec::ReceivePort& port_;
  std::unique_ptr<Message> arriving_;             // the one that is not whole yet
  std::deque<std::unique_ptr<Message>> waiting_;  // whole, and nobody has asked for them
};

}  // namespace gyre::comm
