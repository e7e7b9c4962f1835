#include "transports/tcp/receiver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <poll.h>

namespace gyre::transport {
TcpReceiver::TcpReceiver(const LinkKey& key, const TransportEnvironment& environment,
                         std::shared_ptr<FifoMemory> memory, std::shared_ptr<Arrival> arrival,
                         IssuedTicket ticket, StreamSecurity security,
                         std::shared_ptr<SharedSocket> pair)
    : key_(key),
      memory_(std::move(memory)),
      arrival_(std::move(arrival)),
      ticket_(std::move(ticket)),
      security_(std::move(security)),
      pair_(std::move(pair)),
      own_addresses_(environment.self.addresses),
      liveness_ns_(environment.liveness_ns),
      arriving_(memory_->view),
      common_(common_header(key, environment)) {}

Status TcpReceiver::progress() {
  if (!error_.ok() || closed_) return error_;
  Status status = is_cut_off_ ? cut_off_failure() : ready() ? land() : join();
  if (!status.ok()) fail(std::move(status));
  return error_;
}

void TcpReceiver::fail(Status status) {
  stream_.reset();
  error_ = link_failure(std::move(status),
                        fmt::format("tcp from rank {} ({})", key_.peer, address_), key_.peer);
}

Status TcpReceiver::join() {
  if (stream_ == nullptr) {
    GYRE_ASSIGN(std::shared_ptr<FileDescriptor> socket, find_socket());
    if (socket == nullptr) return {};
    set_path_questions(socket->get(), liveness_ns_);
    GYRE_ASSIGN(stream_, make_stream(security_, std::move(socket), trust::SessionRole::server));
  }
  if (!stream_->joined()) GYRE_TRY(stream_->join());
  return stream_->joined() ? land() : Status();
}

// At the listener, or as the other way of what the sending end dialed; none yet.
Result<std::shared_ptr<FileDescriptor>> TcpReceiver::find_socket() {
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

Status TcpReceiver::land() {
  for (;;) {
    GYRE_TRY(use_ahead());
    if (!arriving_.has_credit()) return {};
    // A header that is not whole yet moves to the front, so that there is room behind it.
    std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, ahead_bytes());
    ahead_end_ = ahead_bytes();
    ahead_begin_ = 0;
    const std::size_t missing = has_header_ ? header_.bytes - landed_ : 0;
    std::array<iovec, 2> parts = {iovec{place() + landed_, missing},
                                  iovec{ahead_.data() + ahead_end_, max_ahead - ahead_end_}};
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
    commit_if_whole();
    // The kernel has no more; another call would only say so.
    if (transfer.bytes < asked) return use_ahead();
  }
}

Status TcpReceiver::use_ahead() {
  while (arriving_.has_credit()) {
    if (!has_header_) {
      if (ahead_bytes() < sizeof(WireHeader)) return {};
      GYRE_TRY(take_header());
    }
    const std::size_t part = std::min<std::size_t>(ahead_bytes(), header_.bytes - landed_);
    std::memcpy(place() + landed_, ahead_.data() + ahead_begin_, part);
    landed_ += part;
    ahead_begin_ += part;
    commit_if_whole();
    if (has_header_) return {};
  }
  return {};
}

Status TcpReceiver::take_header() {
  std::memcpy(&header_, ahead_.data() + ahead_begin_, sizeof header_);
  ahead_begin_ += sizeof header_;
  const std::string fault =
      wire_fault(header_, common_, arriving_.tail(), memory_->view.shape.slot_bytes);
  if (!fault.empty())
    return Status(Code::RemoteError, "a message with a header that is not ours: " + fault);
  has_header_ = true;
  landing_ = lent_place();
  landed_ = 0;
  return {};
}

// A message of a later call may come while this rank is still in an earlier one.
std::byte* TcpReceiver::lent_place() const {
  const bool is_stored = (header_.flags & wire_flag::final) != 0 || loan_.stores_all != 0;
  const bool is_of_call = header_.call != 0 && header_.call == lent_to_ &&
                          header_.signature == message_flag(arriving_.tail() + 1, loan_.signature);
  const bool fits = header_.place <= loan_.bytes && header_.bytes <= loan_.bytes - header_.place;
  if (loan_.region != region_same_process || !is_of_call || !is_stored || !fits) return nullptr;
  return reinterpret_cast<std::byte*>(loan_.offset) + header_.place;
}

void TcpReceiver::commit_if_whole() {
  if (!has_header_ || landed_ < header_.bytes) return;
  arriving_.commit(static_cast<std::uint32_t>(header_.bytes), header_.signature,
                   landing_ != nullptr ? DeliveryMode::push : DeliveryMode::staged);
  has_header_ = false;
}

Status TcpReceiver::note_closing() {
  if (has_header_)
    return Status(Code::RemoteError, fmt::format("the peer closed after {} of a message's {} bytes",
                                                 landed_, header_.bytes));
  if (ahead_bytes() > 0)
    return Status(Code::RemoteError, "the peer closed in the middle of a message's header");
  closed_ = true;
  return {};
}

Status TcpReceiver::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  if (!error_.ok() || stream_ == nullptr) return error_;
  Status path = judge_path(stream_->descriptor(), path_, now_ns, limit_ns);
  if (!path.ok()) fail(std::move(path));
  return error_;
}

void TcpReceiver::arm(WaitSet& set) {
  if (!error_.ok()) return;
  if (stream_ == nullptr) {
    if (pair_ != nullptr && pair_->dialed != nullptr)
      return set.add_descriptor(pair_->dialed->get(), POLLIN);
    return set.add_futex(&arrival_->rung, arrival_->rung.load(std::memory_order_acquire));
  }
  // This end waits for a message that will not come.
  if (closed_ && arriving_.drained())
    return fail(Status(Code::RemoteError, "the peer closed the connection"));
  const short own = !closed_ && arriving_.has_credit() ? POLLIN : 0;
  const auto events = static_cast<short>(own | stream_->wanted_events());
  if (events != 0) set.add_descriptor(stream_->descriptor(), events);
}

}  // namespace gyre::transport
