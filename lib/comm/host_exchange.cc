#include "lib/comm/host_exchange.h"

#include "kernels/cpu/move.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace gyre::comm {

namespace {

bool holds(std::span<const Transfer> batch, const Transfer* one) {
  return std::less_equal<>()(batch.data(), one) && std::less<>()(one, batch.data() + batch.size());
}

}  // namespace

Status HostExchange::begin(std::span<const Transfer> batch) {
  for (const Transfer& transfer : batch) {
    if (transfer.sends)
      sends_.push_back({&transfer});
    else
      receives_.push_back(
          std::make_unique<PendingReceive>(PendingReceive{&transfer, false, false}));
  }
  find_peers();
  for (const Transfer& transfer : batch)
    if (transfer.peer != any_source) GYRE_TRY(links_.open_pair(transfer.peer));
  return {};
}

// Messages may point to receives that are given up, and half of one may have been sent.
void HostExchange::end(std::span<const Transfer> batch) {
  if (failed_.ok() && !is_done(batch))
    failed_ = Status(Code::RemoteError, "a send or receive of this communicator was given up");
  std::erase_if(sends_, [&](const PendingSend& one) { return holds(batch, one.transfer); });
  std::erase_if(receives_, [&](const auto& one) { return holds(batch, one->transfer); });
  find_peers();
}

void HostExchange::find_peers() {
  peers_.clear();
  for (const PendingSend& one : sends_) peers_.push_back(one.transfer->peer);
  for (const PendingReceiveRef& one : receives_) peers_.push_back(one->transfer->peer);
  if (takes_from_anyone())
    for (int peer = 0; peer < size_; ++peer) peers_.push_back(peer);
  std::ranges::sort(peers_);
  peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  std::erase(peers_, any_source);
}

bool HostExchange::awaits(int peer) const {
  return std::ranges::any_of(receives_, [&](const PendingReceiveRef& one) {
    return !one->done && (one->transfer->peer == peer || one->transfer->peer == any_source);
  });
}

bool HostExchange::takes_from_anyone() const {
  return std::ranges::any_of(receives_, [](const PendingReceiveRef& one) {
    return !one->done && one->transfer->peer == any_source;
  });
}

bool HostExchange::depends_on(int peer) const {
  return std::ranges::any_of(receives_, [&](const PendingReceiveRef& one) {
    return !one->done && one->transfer->peer == peer;
  });
}

Mailbox& HostExchange::mailbox(int peer) {
  return mailboxes_.try_emplace(peer, peer, *links_.pair(peer).receive).first->second;
}

// One slot after the other, the head in the first.
void HostExchange::ship(PendingSend& send, exec::SendPort& port, bool& moved) const {
  const Transfer& transfer = *send.transfer;
  const std::uint64_t slot_bytes = port.slots.view().shape.slot_bytes;
  while (!send.done && port.slots.has_credit()) {
    std::byte* place = port.slots.place();
    std::uint64_t used = 0;
    if (!send.begun) {
      const TransferHead head{
          transfer.bytes, transfer.tag, static_cast<std::uint8_t>(transfer.type), {}};
      std::memcpy(place, &head, sizeof head);
      used = sizeof head;
      send.begun = true;
    }
    const std::uint64_t part = std::min(slot_bytes - used, transfer.bytes - send.sent);
    if (part > 0) {
      const void* source = transfer.input + send.sent;
      void* target = place + used;
      kernels::Move act;
      act.sources = &source;
      act.source_count = 1;
      act.targets = &target;
      act.target_count = 1;
      act.count = part;
      kernels::copy_move(act);
    }
    send.sent += part;
    port.slots.commit(static_cast<std::uint32_t>(used + part),
                      transport::message_flag(port.slots.tail() + 1, transfer_signature),
                      transport::Delivery::staged);
    moved = true;
    send.done = send.sent == transfer.bytes;
    send.tail = port.slots.tail();
  }
}

Status HostExchange::advance_sends(bool& moved) {
  std::vector<int> served;  // peers whose first unfinished send has had its turn
  for (PendingSend& send : sends_) {
    const int peer = send.transfer->peer;
    if (!links_.pair_is_open(peer) || std::ranges::find(served, peer) != served.end()) continue;
    GYRE_TRY(links_.check_pair(peer));
    exec::SendPort& port = *links_.pair(peer).send;
    if (!send.done) ship(send, port, moved);
    if (!send.done) served.push_back(peer);
    if (port.connection->needs_progress()) GYRE_TRY(port.connection->progress());
  }
  return {};
}

Status HostExchange::advance_receives(bool& moved) {
  if (takes_from_anyone()) GYRE_TRY(links_.accept_pairs(size_));
  for (const int peer : peers_) {
    if (!awaits(peer) || !links_.pair_is_open(peer)) continue;
    Mailbox& box = mailbox(peer);
    if (box.port().connection->needs_progress()) GYRE_TRY(box.port().connection->progress());
    GYRE_TRY(box.advance(receives_, moved, kept_bytes_));
  }
  return {};
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

// It has left this process, too.
bool HostExchange::is_gone(const PendingSend& send) const {
  return send.done && links_.pair(send.transfer->peer).send->connection->flushed_to(send.tail);
}

bool HostExchange::is_done(std::span<const Transfer> batch) const {
  return std::ranges::all_of(
             sends_,
             [&](const PendingSend& one) { return !holds(batch, one.transfer) || is_gone(one); }) &&
         std::ranges::all_of(receives_, [&](const PendingReceiveRef& one) {
           return one->done || !holds(batch, one->transfer);
         });
}

std::size_t HostExchange::pending(std::span<const Transfer> batch) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(
          sends_, [&](const PendingSend& one) { return !one.done && holds(batch, one.transfer); }) +
      std::ranges::count_if(receives_, [&](const PendingReceiveRef& one) {
        return !one->done && holds(batch, one->transfer);
      }));
}

Blocked HostExchange::blocked(std::span<const Transfer> batch) {
  const auto state = [&](int peer, BlockedOn what) {
    const bool opening = peer != any_source && !links_.pair_is_open(peer);
    return Blocked{opening ? BlockedOn::connection : what, peer, 0, 0};
  };
  for (const PendingReceiveRef& one : receives_)
    if (!one->done && holds(batch, one->transfer))
      return state(one->transfer->peer, BlockedOn::data);
  for (const PendingSend& one : sends_)
    if (!one.done && holds(batch, one.transfer))
      return state(one.transfer->peer, BlockedOn::credit);
  return {};
}

bool HostExchange::arm(WaitSet& set) {
  bool asleep = links_.arm(set);  // openings, and letters of those who begin one
  for (const PendingSend& one : sends_) {
    if (!links_.pair_is_open(one.transfer->peer) || !links_.check_pair(one.transfer->peer).ok())
      continue;
    exec::SendPort& port = *links_.pair(one.transfer->peer).send;
    if (one.done && port.connection->flushed()) continue;
    port.connection->arm(set);
    asleep &= one.done || !port.slots.has_credit();
  }
  for (const int peer : peers_) {
    if (!awaits(peer) || !links_.pair_is_open(peer)) continue;
    exec::ReceivePort& port = *links_.pair(peer).receive;
    if (port.connection->at_end() && !depends_on(peer)) continue;
    port.connection->arm(set);
    asleep &= !port.slots.has_message();
  }
  return asleep;
}

void HostExchange::disarm() {
  links_.disarm();
  for (const int peer : peers_) {
    if (!links_.pair_is_open(peer)) continue;
    if (exec::SendPort* send = links_.pair(peer).send) send->connection->disarm();
    links_.pair(peer).receive->connection->disarm();
  }
}

}  // namespace gyre::comm
