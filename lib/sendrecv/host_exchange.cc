#include "lib/sendrecv/host_exchange.h"

#include <algorithm>
#include <numeric>

namespace gyre::comm {

Blocked HostExchange::blocked(const Batch& batch) {
  const Transfer* const first = batch.first_open();
  if (first == nullptr) return {};
  const int peer = first->peer;
  const bool is_opening =
      peer != any_source && !(first->sends ? links_.pair_is_open(peer) : links_.can_receive(peer));
  // A call that fails may come before its sends were begun.
  const auto outbox = outboxes_.find(peer);
  BlockedOn what = first->sends ? BlockedOn::credit : BlockedOn::data;
  if (first->sends && outbox != outboxes_.end() && outbox->second.lends()) what = BlockedOn::drain;
  return {is_opening ? BlockedOn::connection : what, peer, 0, 0};
}

Status HostExchange::begin(Batch& batch) {
  for (const Transfer& transfer : batch.transfers()) {
    if (transfer.sends)
      begin_send({&transfer, &batch});
    else
      GYRE_TRY(begin_receive({&transfer, &batch}));
  }
  for (const Transfer& transfer : batch.transfers()) {
    if (transfer.peer == any_source) continue;
    GYRE_TRY(links_.open_pair(transfer.peer));
    if (!is_near(transfer.peer)) note_near(transfer.peer);
  }
  return {};
}

void HostExchange::note_near(int peer) {
  if (!links_.pair_is_open(peer) || !links_.check_pair(peer).ok()) return;
  const Links::PortPair ports = links_.pair(peer);
  if (ports.send->shares_memory != ports.receive->shares_memory) return;
  near_.resize(static_cast<std::size_t>(size_));
  near_[static_cast<std::size_t>(peer)] = {ports.send, &mailbox(peer)};
}

void HostExchange::begin_send(const PendingTransfer& send) {
  const int peer = send.transfer->peer;
  Outbox& outbox = outboxes_.try_emplace(peer, regions_).first->second;
  if (outbox.is_empty()) sending_.push_back(peer);
  outbox.add(send);
}

// Of messages that nobody has asked for, it takes the first of the lowest rank.
Status HostExchange::begin_receive(const PendingTransfer& receive) {
  const int peer = receive.transfer->peer;
  const bool is_any = peer == any_source;
  const auto last = is_any ? mailboxes_.end() : mailboxes_.upper_bound(peer);
  for (auto box = is_any ? mailboxes_.begin() : mailboxes_.find(peer);
       box != mailboxes_.end() && box != last && failed_.ok(); ++box) {
    GYRE_ASSIGN(const bool is_given, box->second.give_kept(receive));
    if (is_given) return {};
  }
  receives_.add(receive);
  return {};
}

// Messages may point to receives that are given up, and half of one may have been sent.
void HostExchange::end(Batch& batch, const Status& why) {
  if (batch.is_done()) return;
  if (failed_.ok())
    failed_ = Status(why).while_doing("sends and receives of this communicator were given up");
  receives_.forget(batch);
  for (auto& [peer, outbox] : outboxes_)
    if (outbox.forget(batch)) Outbox::recall(*links_.pair(peer).send);
}

Mailbox& HostExchange::mailbox(int peer) {
  return mailboxes_.try_emplace(peer, peer, *links_.pair(peer).receive, receives_, kept_bytes_)
      .first->second;
}

Status HostExchange::advance_sends(bool& moved) {
  for (const int peer : sending_) {
    if (!links_.pair_is_open(peer)) continue;
    GYRE_TRY(links_.check_pair(peer));
    GYRE_TRY(outboxes_.at(peer).advance(*links_.pair(peer).send, moved));
  }
  std::erase_if(sending_, [this](int peer) { return outboxes_.at(peer).is_empty(); });
  return {};
}

Status HostExchange::advance_receives(bool& moved) {
  if (receives_.from_anyone()) GYRE_TRY(links_.accept_pairs(size_));
  find_awaited();
  for (const int peer : awaited_) {
    if (!links_.can_receive(peer)) continue;
    Mailbox& box = mailbox(peer);
    if (box.port().connection->needs_progress()) GYRE_TRY(box.port().connection->progress());
    GYRE_TRY(box.advance(moved));
  }
  return {};
}

// A copy, as receives may end while they are advanced.
void HostExchange::find_awaited() {
  awaited_ = receives_.peers();
  if (!receives_.from_anyone()) return;
  awaited_.resize(static_cast<std::size_t>(size_));
  std::iota(awaited_.begin(), awaited_.end(), 0);
}

Status HostExchange::advance_all(bool& moved) {
  if (!links_.all_open()) GYRE_TRY(links_.advance(moved));
  GYRE_TRY(advance_sends(moved));
  return advance_receives(moved);
}

// A message may point to a receive that its caller has given up after an error.
Status HostExchange::advance(bool& moved) {
  if (failed_.ok()) failed_ = advance_all(moved);
  return failed_;
}

Status HostExchange::look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) {
  GYRE_TRY(links_.look_at_peers(now_ns, limit_ns));
  for (const int peer : awaited_)
    if (links_.can_receive(peer) && may_bring_what_is_awaited(peer))
      GYRE_TRY(links_.pair(peer).receive->connection->look_at_peer(now_ns, limit_ns));
  return {};
}

bool HostExchange::may_bring_what_is_awaited(int peer) {
  if (receives_.depend_on(peer)) return true;
  return receives_.from_anyone() && !links_.pair(peer).receive->connection->at_end();
}

bool HostExchange::waits_on_memory(const Batch& batch) {
  const Transfer* const first = batch.first_open();
  if (first == nullptr || first->peer == any_source || !links_.can_receive(first->peer))
    return false;
  return !links_.pair(first->peer).receive->connection->needs_progress();
}

bool HostExchange::may_come_from_anyone() {
  for (int peer = 0; peer < size_; ++peer) {
    if (!links_.can_receive(peer)) continue;
    Mailbox& box = mailbox(peer);
    const transport::Connection& connection = *box.port().connection;
    const bool is_over = !connection.needs_progress() || connection.at_end();
    if (!is_over || box.has_something()) return true;
  }
  return !links_.all_open();
}

bool HostExchange::arm(WaitSet& set) {
  bool asleep = links_.arm(set);  // openings, and messages of those who begin one
  for (const int peer : sending_) {
    if (!links_.pair_is_open(peer) || !links_.check_pair(peer).ok()) continue;
    exec::SendPort& port = *links_.pair(peer).send;
    const bool is_shipped = outboxes_.at(peer).is_shipped();
    if (is_shipped && port.connection->flushed()) continue;
    port.connection->arm(set);
    asleep &= is_shipped || !outboxes_.at(peer).has_room(port);
  }
  find_awaited();
  for (const int peer : awaited_) {
    if (!links_.can_receive(peer)) continue;
    exec::ReceivePort& port = *links_.pair(peer).receive;
    if (port.connection->at_end() && !receives_.depend_on(peer)) continue;
    if (links_.pair_is_open(peer)) port.connection->arm(set);  // else with the openings
    asleep &= !mailbox(peer).has_something();
  }
  return asleep;
}

void HostExchange::disarm() {
  links_.disarm();
  for (const int peer : sending_)
    if (links_.pair_is_open(peer) && links_.check_pair(peer).ok())
      links_.pair(peer).send->connection->disarm();
  for (const int peer : awaited_)
    if (links_.pair_is_open(peer)) links_.pair(peer).receive->connection->disarm();
}

}  // namespace gyre::comm
