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
  ImmediateTransfer(CommunicatorState& state, Backend& backend)
      : state_(state), backend_(backend), record_(state.rank_state, WaitLane::transfers) {}

  // not_this: nothing has happened. waits: SendRecvOp has to go on with it, and with `record`.
  enum class Outcome : std::uint8_t { not_this, done, waits };
  // Of a transfer that is checked.
  Outcome carry_out(const Transfer& transfer, std::uint64_t count, const WaitPolicy& policy) {
    if (!is_ready()) [[unlikely]]
      return Outcome::not_this;
    return transfer.sends ? send(transfer, count) : receive(transfer, count, policy);
  }
  // Whether it knows the peer, so that a group may have the transfer.
  bool may_carry_out(const Transfer& transfer) {
    return is_ready() && exchange_->is_near(transfer.peer);
  }
  // The same of all of a group. waits: the group still has those that SendRecvOp has to go on with.
  Outcome carry_out(ShortGroup& group, const WaitPolicy& policy);
  const OperationRecord& record() const { return record_; }

 private:
  bool is_ready() {
    if (exchange_ == nullptr) [[unlikely]]
      exchange_ = backend_.host_exchange();
    return exchange_ != nullptr && state_.is_sound();
  }
  Outcome send(const Transfer& transfer, std::uint64_t count) {
    exec::SendPort* const port = exchange_->ready_to_send(transfer, max_slots_one_way);
    if (port == nullptr) [[unlikely]]
      return Outcome::not_this;
    if (transfer.bytes < timed_flight_bytes) [[likely]]
      record_.begin(0, function_code(transfer), short_flight(transfer, count));
    else
      record_.begin(flight_call({&transfer, 1}));
    write_message(*port, transfer);
    record_.end_well();
    return Outcome::done;
  }
  Outcome receive(const Transfer& transfer, std::uint64_t count, const WaitPolicy& policy) {
    Mailbox* const box = exchange_->ready_to_receive(transfer, max_slots_one_way);
    if (box == nullptr) [[unlikely]]
      return Outcome::not_this;
    if (transfer.bytes >= timed_flight_bytes) [[unlikely]]
      return receive_timed(*box, transfer, policy);
    const Mailbox::Taken taken = box->take_now(transfer);
    if (taken == Mailbox::Taken::other) [[unlikely]]
      return Outcome::not_this;
    record_.begin(0, function_code(transfer), short_flight(transfer, count));
    if (taken == Mailbox::Taken::not_here && !await(*box, transfer, policy)) return Outcome::waits;
    record_.end_well();
    return Outcome::done;
  }
  Outcome receive_timed(Mailbox& box, const Transfer& transfer, const WaitPolicy& policy);
  bool await(Mailbox& box, const Transfer& transfer, const WaitPolicy& policy);
  bool can_begin(ShortGroup& group);
  void send_all(ShortGroup& group);
  ShortWait take_all(ShortGroup& group);

  CommunicatorState& state_;
  Backend& backend_;
  HostExchange* exchange_ = nullptr;
  OperationRecord record_;
};

}  // namespace gyre::comm
