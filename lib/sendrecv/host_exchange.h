// HostExchange: sends and receives of host memory. Sends to one peer leave in the order in which
// they were begun. Sends to different peers run side by side. Receives are matched in their order.
#pragma once

#include "lib/call/transfer.h"
#include "lib/control/control.h"
#include "lib/links/links.h"
#include "lib/sendrecv/batch.h"
#include "lib/sendrecv/exchange.h"
#include "lib/sendrecv/inline_message.h"
#include "lib/sendrecv/mailbox.h"
#include "lib/sendrecv/outbox.h"
#include "lib/sendrecv/receives.h"

#include <map>
#include <vector>

namespace gyre::comm {

class HostExchange final : public Exchange {
 public:
  // Of `size` ranks; `regions` are this process's. What it is given outlives it.
  HostExchange(Links& links, const transport::RegionTable& regions, int size)
      : links_(links), regions_(regions), size_(size) {}

  Status begin(Batch& batch) override;
  Status advance(bool& moved) override;
  Blocked blocked(const Batch& batch) override;
  Status look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) override;
  bool waits_on_memory(const Batch& batch) override;
  bool may_come_from_anyone() override;
  void end(Batch& batch, const Status& why) override;
  bool arm(WaitSet& set) override;
  void disarm() override;

  // While no batch is open: the port that takes all of the message at once, and the box that it
  // would come to. Null: a batch has to carry it, also if it takes more slots.
  exec::SendPort* ready_to_send(const Transfer& transfer, std::uint32_t max_slots) {
    if (!is_near(transfer.peer) || !may_send_next()) return nullptr;
    exec::SendPort* const port = near_[static_cast<std::size_t>(transfer.peer)].send;
    return has_room(*port, transfer.bytes, max_slots) ? port : nullptr;
  }
  Mailbox* ready_to_receive(const Transfer& transfer, std::uint32_t max_slots) {
    if (!is_near(transfer.peer)) return nullptr;
    Mailbox* const box = near_[static_cast<std::size_t>(transfer.peer)].box;
    const exec::ReceivePort& port = box->port();
    const transport::FifoShape& shape = port.slots.view().shape;
    const bool is_short = port.shares_memory ? fits(transfer.bytes, shape, max_slots)
                                             : fits_slot(transfer.bytes, shape);
    return is_short && may_receive_next(*box) ? box : nullptr;
  }

  // The same of ports and boxes that were ready before: whether one of these takes the next message
  // as far as other messages are concerned.
  bool may_send_next() const { return sending_.empty() && may_go_on(); }
  bool may_receive_next(const Mailbox& box) const {
    return receives_.none_unfinished() && box.is_clear() && may_go_on();
  }

  // Whether messages of a group may pass so: not by a wire, which takes them one by one.
  bool may_group(int peer) const {
    return is_near(peer) && may_go_on() &&
           near_[static_cast<std::size_t>(peer)].send->shares_memory;
  }

 private:
  bool may_go_on() const { return failed_.ok() && links_.all_open(); }
  bool is_near(int peer) const {
    const auto index = static_cast<std::size_t>(peer);
    return index < near_.size() && near_[index].send != nullptr;
  }
  void note_near(int peer);
  void begin_send(const PendingTransfer& send);
  Status begin_receive(const PendingTransfer& receive);
  Status advance_all(bool& moved);
  Status advance_sends(bool& moved);
  Status advance_receives(bool& moved);
  void find_awaited();
  bool may_bring_what_is_awaited(int peer);
  Mailbox& mailbox(int peer);

  Links& links_;
  const transport::RegionTable& regions_;
  const int size_;
  std::map<int, Outbox> outboxes_;  // by peer, from the first send on
  std::vector<int> sending_;        // peers with something in their outbox
  Receives receives_;
  std::vector<int> awaited_;          // at the last look: who may send what is to be received
  std::map<int, Mailbox> mailboxes_;  // by peer, from the first message on
  std::uint64_t kept_bytes_ = 0;      // in them
  struct NearPeer {
    exec::SendPort* send = nullptr;  // null: not open yet, or memory is shared one way alone
    Mailbox* box = nullptr;
  };
  std::vector<NearPeer> near_;  // by peer, from the first one on
  Status failed_;               // nothing goes on after an error
};

}  // namespace gyre::comm
