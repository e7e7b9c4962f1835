// ImmediateTransfer: a send or receive whose message finds room in the lines and slots of a link at
// once, while no other one of the communicator is under way. It leaves others to SendRecvOp, before
// anything has happened, and hands over one that has waited for long.
#pragma once

#include "lib/comm/backend.h"
#include "lib/comm/communicator_state.h"
#include "lib/comm/short_group.h"
#include "lib/comm/short_wait.h"
#include "lib/sendrecv/host_exchange.h"
#include "lib/sendrecv/inline_message.h"

#include <cstdint>

namespace gyre::comm {

class ImmediateTransfer {
 public:
  // They outlive it. The policy is for calls once all ranks have joined.
  ImmediateTransfer(CommunicatorState& state, Backend& backend, const WaitPolicy& policy)
      : state_(state),
        backend_(backend),
        policy_(policy),
        record_(state.rank_state, WaitLane::transfers) {}

  // not_this: nothing has happened. waits: SendRecvOp has to go on with it, and with `record`.
  enum class Outcome : std::uint8_t { not_this, done, waits };
  // Of a transfer that is checked.
  Outcome carry_out(const Transfer& transfer, std::uint64_t count) {
    if (!is_ready()) [[unlikely]]
      return Outcome::not_this;
    return transfer.sends ? send(transfer, count) : receive(transfer, count);
  }
  // Of one that is like the last of its direction, if that was short; unchecked.
  Outcome send_again(const TransferShape& call, const void* buffer);
  Outcome receive_again(const TransferCall& call);
  // Whether it knows the peer, so that a group may have the transfer.
  bool may_carry_out(const Transfer& transfer) {
    return is_ready() && exchange_->may_group(transfer.peer);
  }
  // The same of all of a group. waits: the group still has those that SendRecvOp has to go on with.
  Outcome carry_out(ShortGroup& group);
  const OperationRecord& record() const { return record_; }
  // With what SendRecvOp has to go on, where it is no group.
  const Transfer& left() const { return left_; }

 private:
  // A short transfer that has been carried out. Its messages follow their heads in lines.
  struct RepeatableTransfer : KnownTransfer {
    TransferHead head;
    ShortFlight flight;
    DoneCounters* done = nullptr;
    exec::SendPort* port = nullptr;  // of a send
    Mailbox* box = nullptr;          // of a receive

    // None yet: it is like no call of the direction.
    static RepeatableTransfer none(bool of_sends) {
      RepeatableTransfer made;
      made.shape.sends = !of_sends;
      return made;
    }
  };

  bool is_ready() {
    if (exchange_ == nullptr) [[unlikely]]
      exchange_ = backend_.host_exchange();
    return exchange_ != nullptr && state_.is_sound();
  }
  Outcome send(const Transfer& transfer, std::uint64_t count);
  Outcome ship(exec::SendPort& port, const Transfer& transfer);
  Outcome receive(const Transfer& transfer, std::uint64_t count);
  Outcome receive_timed(Mailbox& box, const Transfer& transfer);
  RepeatableTransfer repeatable(const Transfer& transfer, std::uint64_t count);
  bool await(Mailbox& box, const Transfer& transfer);
  Outcome leave(const Transfer& transfer);
  static void prepare(ShortGroup& group);
  bool can_begin(const ShortGroup& group);
  void send_all(ShortGroup& group);
  ShortWait take_all(ShortGroup& group);

  CommunicatorState& state_;
  Backend& backend_;
  const WaitPolicy& policy_;
  HostExchange* exchange_ = nullptr;
  OperationRecord record_;
  Transfer left_;
  RepeatableTransfer last_send_ = RepeatableTransfer::none(true);
  RepeatableTransfer last_receive_ = RepeatableTransfer::none(false);
};

[[gnu::always_inline]] inline ImmediateTransfer::Outcome ImmediateTransfer::send_again(
    const TransferShape& call, const void* buffer) {
  if (!last_send_.takes(call, buffer) || !state_.is_sound() || !exchange_->may_send_next())
      [[unlikely]]
    return Outcome::not_this;
  exec::SendPort* const port = last_send_.port;
  if (!port->lines.has_credit(max_inline_lines)) [[unlikely]]
    return Outcome::not_this;
  record_.begin(0, last_send_.flight);
  const auto* const payload = static_cast<const std::byte*>(buffer);
  if (last_send_.transfer.bytes <= first_line_bytes) [[likely]]
    write_first_line(port->lines, last_send_.head, payload, last_send_.transfer.bytes);
  else
    write_lines(port->lines, last_send_.head, payload);
  record_.end_well(last_send_.flight, *last_send_.done);
  return Outcome::done;
}

}  // namespace gyre::comm
