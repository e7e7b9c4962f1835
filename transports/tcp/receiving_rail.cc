#include "transports/tcp/receiving_rail.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <span>
#include <utility>

namespace gyre::transport {

ReceivingRail::ReceivingRail(RailTerms terms, std::vector<std::string> own_addresses,
                             std::shared_ptr<Arrival> arrival, IssuedTicket ticket,
                             std::shared_ptr<SharedSocket> pair)
    : terms_(std::move(terms)),
      own_addresses_(std::move(own_addresses)),
      arrival_(std::move(arrival)),
      ticket_(std::move(ticket)),
      pair_(std::move(pair)),
      least_(terms_.first_message) {}

Status ReceivingRail::join() {
  if (stream_ == nullptr) {
    GYRE_ASSIGN(std::shared_ptr<FileDescriptor> socket, find_socket());
    if (socket == nullptr) return {};
    set_path_questions(socket->get(), terms_.liveness_ns);
    GYRE_ASSIGN(stream_,
                make_stream(terms_.security, std::move(socket), trust::SessionRole::server));
  }
  return stream_->joined() ? Status() : stream_->join();
}

// At the listener, or as the other way of what the sending end dialed; none yet.
Result<std::shared_ptr<FileDescriptor>> ReceivingRail::find_socket() {
  // Pairs with the release of the control thread, which fills it.
  FileDescriptor came(arrival_->socket.exchange(-1, std::memory_order_acquire));
  if (came.has_value()) {
    address_ = peer_address(came);
    if (!leads_to_this_host(address_, own_addresses_)) prefer_system_default(came);
    auto socket = std::make_shared<FileDescriptor>(std::move(came));
    if (pair_ != nullptr) pair_->came = socket;
    return socket;
  }
  if (pair_ == nullptr || pair_->dialed == nullptr) return std::shared_ptr<FileDescriptor>();
  address_ = peer_address(*pair_->dialed);
  GYRE_ASSIGN(const TicketProgress shown, take_ticket(*pair_->dialed, pair_->ticket, shown_));
  if (shown == TicketProgress::not_yet) return std::shared_ptr<FileDescriptor>();
  std::shared_ptr<FileDescriptor> socket = std::move(pair_->dialed);
  if (shown == TicketProgress::ended) {
    pair_->lost = std::exchange(shown_, {}).end;
    return std::shared_ptr<FileDescriptor>();
  }
  pair_->answered = socket;
  return socket;
}

Status ReceivingRail::land(InboundMessages& inbound, const WireHeader& common) {
  while (!closed_) {
    GYRE_TRY(use_ahead(inbound, common));
    if (!has_room(inbound)) return {};
    // A header that is not whole yet moves to the front, so that there is room behind it.
    std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, ahead_bytes());
    ahead_end_ = ahead_bytes();
    ahead_begin_ = 0;
    const std::size_t missing = has_header_ ? header_.bytes - landed_ : 0;
    std::array<iovec, 2> parts = {iovec{place_ + landed_, missing},
                                  iovec{ahead_.data() + ahead_end_, ahead_room_ - ahead_end_}};
    const std::size_t asked = missing + parts[1].iov_len;
    const IoResult transfer =
        stream_->receive(missing > 0 ? std::span(parts) : std::span(parts).last(1));
    if (transfer.outcome == IoResult::Outcome::blocked) return {};
    if (transfer.outcome == IoResult::Outcome::closed) return note_closing();
    if (transfer.outcome == IoResult::Outcome::failed)
      return Status(Code::RemoteError, "receive: " + transfer.cause);
    const std::size_t in_place = std::min(transfer.bytes, missing);
    landed_ += in_place;
    ahead_end_ += transfer.bytes - in_place;
    GYRE_TRY(take_if_whole(inbound));
    // The kernel has no more; another call would only say so.
    if (transfer.bytes < asked) return use_ahead(inbound, common);
  }
  return {};
}

Status ReceivingRail::use_ahead(InboundMessages& inbound, const WireHeader& common) {
  while (has_room(inbound)) {
    if (!has_header_) {
      if (ahead_bytes() < sizeof(WireHeader)) return {};
      GYRE_TRY(take_header(inbound, common));
      if (!has_room(inbound)) return {};
    }
    if (place_ == nullptr) {
      GYRE_ASSIGN(place_, inbound.claim(header_));
    }
    const std::size_t part = std::min<std::size_t>(ahead_bytes(), header_.bytes - landed_);
    std::memcpy(place_ + landed_, ahead_.data() + ahead_begin_, part);
    landed_ += part;
    ahead_begin_ += part;
    GYRE_TRY(take_if_whole(inbound));
    if (has_header_) return {};
  }
  return {};
}

Status ReceivingRail::take_header(const InboundMessages& inbound, const WireHeader& common) {
  std::memcpy(&header_, ahead_.data() + ahead_begin_, sizeof header_);
  ahead_begin_ += sizeof header_;
  const ExpectedMessage expected = expected_message(inbound);
  const std::string fault = wire_fault(header_, common, expected, inbound.slot_bytes());
  if (!fault.empty())
    return Status(Code::RemoteError, "a message with a header that is not ours: " + fault);
  has_header_ = true;
  place_ = nullptr;
  landed_ = 0;
  least_ = header_.sequence + 1;
  ahead_room_ = sizeof header_ + header_.bytes <= max_ahead ? max_ahead : ahead_of_large;
  return {};
}

// Over one socket messages come one after the other; over each of several, in order with gaps.
ExpectedMessage ReceivingRail::expected_message(const InboundMessages& inbound) const {
  if (!terms_.is_one_of_several) return {inbound.next(), true};
  const bool is_ahead = static_cast<std::int64_t>(least_ - inbound.next()) > 0;
  return {is_ahead ? least_ : inbound.next(), false};
}

Status ReceivingRail::take_if_whole(InboundMessages& inbound) {
  if (!has_header_ || landed_ < header_.bytes) return {};
  GYRE_TRY(check_sum());
  inbound.take(header_);
  has_header_ = false;
  return {};
}

Status ReceivingRail::check_sum() const {
  std::uint32_t expected = 0;
  if (terms_.has_checksums) {
    Checksum sum = begin_checksum(header_);
    sum.add({place_, header_.bytes});
    expected = sum.value();
  }
  if (header_.checksum == expected) return {};
  return Status(Code::RemoteError,
                fmt::format("the bytes of message {} were changed on their way: its checksum is "
                            "{:08x}, and theirs {:08x}",
                            header_.sequence, header_.checksum, expected));
}

Status ReceivingRail::note_closing() {
  if (has_header_)
    return Status(Code::RemoteError, fmt::format("the peer closed after {} of a message's {} bytes",
                                                 landed_, header_.bytes));
  if (ahead_bytes() > 0)
    return Status(Code::RemoteError, "the peer closed in the middle of a message's header");
  closed_ = true;
  return {};
}

Status ReceivingRail::judge(std::int64_t now_ns, std::int64_t limit_ns) {
  if (stream_ == nullptr) return {};
  return judge_path(stream_->descriptor(), path_, now_ns, limit_ns);
}

void ReceivingRail::arm(WaitSet& set, InboundMessages& inbound) const {
  if (stream_ == nullptr) {
    if (pair_ != nullptr && pair_->dialed != nullptr)
      return set.add_descriptor(pair_->dialed->get(), POLLIN);
    return set.add_futex(&arrival_->rung, arrival_->rung.load(std::memory_order_acquire));
  }
  const short own = !closed_ && has_room(inbound) ? POLLIN : 0;
  const auto events = static_cast<short>(own | stream_->wanted_events());
  if (events != 0) set.add_descriptor(stream_->descriptor(), events);
}

}  // namespace gyre::transport
