// Mailbox: the messages from one peer to this rank. Each goes straight into the buffer of the
// receive that takes it, or is kept until a receive does. A Mailbox outlives the calls: a message
// that has half arrived at the end of one call continues in the next.
#pragma once

#include "lib/base/status.h"
#include "lib/call/transfer.h"
#include "lib/exec/output_pace.h"
#include "lib/exec/port.h"
#include "lib/sendrecv/receives.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace gyre::comm {

class Mailbox {
 public:
  // `kept_bytes` counts what is kept in all mailboxes. All outlive it.
  Mailbox(int peer, exec::ReceivePort& port, Receives& receives, std::uint64_t& kept_bytes)
      : peer_(peer), port_(port), receives_(receives), kept_bytes_(kept_bytes) {}

  // Begins a receive that may take from this peer: gives it a kept message, if one is for it, and
  // returns whether it did. Else it is one of `receives` from then on.
  Result<bool> give_kept(const PendingTransfer& receive);
  // Takes what is here while a receive awaits it. The error names the peer and both calls.
  Status advance(bool& moved);
  // Nothing is kept, and the next line begins the next message: takes that for the receive, whose
  // bytes fit the slots, if all of it is here and it is the receive's. By a wire: if it is in one
  // slot, after a turn of the wire. Other: it is for `advance` to say.
  enum class Taken : std::uint8_t { not_here, taken, other };
  Taken take_now(const Transfer& receive);
  // Whether a message, or a part of one, is here.
  bool has_something();
  exec::ReceivePort& port() { return port_; }
  bool is_clear() const { return kept_.empty() && !arriving_; }

 private:
  struct Message {
    TransferHead head;
    std::uint64_t here = 0;                  // bytes of it
    std::uint64_t lent_as = 0;               // the message's number, if it is lent
    std::optional<PendingTransfer> receive;  // else kept
    std::vector<std::byte> kept;
    exec::OutputPace* pace = nullptr;
    bool streamed = false;  // past the cache
  };
  Status malformed() const;
  Status begin(const TransferHead& head);
  std::byte* place_for(Message& message, std::uint64_t more) const;
  Status take_lines(bool& moved);
  Status take_slots(bool& moved);
  Status take_slot(const transport::SlotHeader& note);
  Status take_lent();
  Status copy_lent(Message& message, const transport::Loan& loan);
  bool is_ours(const transport::SlotHeader& note, std::uint64_t later,
               transport::DeliveryMode delivery = transport::DeliveryMode::staged) const;
  static bool is_for(const TransferHead& head, const Transfer& receive);
  Taken take_payload_now(const Transfer& receive);
  Taken take_slot_now(const Transfer& receive);
  Status end(Message message);
  Status check(const TransferHead& head, const Transfer& receive) const;
  Status give(const Message& kept, const Transfer& receive);
  void tell_source(const TransferHead& head, const Transfer& receive) const;

  const int peer_;
  exec::ReceivePort& port_;
  Receives& receives_;
  std::uint64_t& kept_bytes_;
  exec::OutputPaces paces_;
  std::optional<Message> arriving_;  // the one that is not whole yet
  std::deque<Message> kept_;         // whole, and nobody has asked for them
};

}  // namespace gyre::comm
