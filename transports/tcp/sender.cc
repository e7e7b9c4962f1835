#include "transports/tcp/sender.h"

#include "lib/base/descriptor_mark.h"
#include "lib/base/log.h"
#include "transports/tcp/socket.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

namespace gyre::transport {

TcpSender::TcpSender(const LinkKey& key, const TransportEnvironment& environment,
                     const EndpointContents& endpoint, std::shared_ptr<FifoMemory> memory,
                     StreamSecurity security, std::shared_ptr<SharedSocket> pair)
    : key_(key),
      memory_(std::move(memory)),
      lent_(memory_->view.shape.slot_count),
      leaving_(memory_->view),
      common_(common_header(key, environment)),
      security_(std::move(security)),
      pair_(std::move(pair)),
      ticket_(endpoint.ticket),
      liveness_ns_(environment.liveness_ns),
      dialer_(endpoint, environment) {
  memory_->view.lent = lent_.data();
}

// The other way may go on: the peer learns here that nothing more comes.
TcpSender::~TcpSender() {
  // If the program has closed our descriptors, the number may be a file of its own.
  if (stream_ == nullptr || !descriptor_mark_stands()) return;
  end_path_watch(stream_->descriptor());
  if (pair_ != nullptr) ::shutdown(stream_->descriptor(), SHUT_WR);
}

Status TcpSender::progress() {
  if (!error_.ok()) return error_;
  Status status = is_cut_off_ ? cut_off_failure() : ready() ? ship() : join();
  if (!status.ok()) fail(std::move(status));
  return error_;
}

void TcpSender::fail(Status status) {
  stream_.reset();
  error_ = link_failure(std::move(status), fmt::format("tcp to rank {} ({})", key_.peer, address_),
                        key_.peer);
}

Status TcpSender::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  const bool waits_for_answer = stream_ == nullptr && pair_ != nullptr && pair_->dialed != nullptr;
  if (!error_.ok() || (stream_ == nullptr && !waits_for_answer)) return error_;
  const int socket = waits_for_answer ? pair_->dialed->get() : stream_->descriptor();
  Status path = judge_path(socket, path_, now_ns, limit_ns);
  if (!path.ok()) fail(std::move(path));
  return error_;
}

Status TcpSender::join() {
  if (stream_ == nullptr) {
    GYRE_ASSIGN(std::shared_ptr<FileDescriptor> socket, find_socket());
    if (socket == nullptr) return {};
    address_ = peer_address(*socket);
    set_path_questions(socket->get(), liveness_ns_);
    log_info(Subsystem::net, "rank {} is at {}", key_.peer, address_);
    GYRE_ASSIGN(stream_, make_stream(security_, std::move(socket), trust::SessionRole::client));
  }
  if (!stream_->joined()) {
    Status joined = stream_->join();
    if (joined.code() == Code::RemoteError && !stream_->has_heard()) {
      stream_.reset();
      return dialer_.again(joined.message());
    }
    GYRE_TRY(std::move(joined));
  }
  return stream_->joined() ? ship() : Status();
}

Result<std::shared_ptr<FileDescriptor>> TcpSender::find_socket() {
  if (pair_ != nullptr && pair_->rides(ticket_)) {
    std::shared_ptr<FileDescriptor> socket = std::move(pair_->came);
    if (socket == nullptr) return socket;
    GYRE_TRY(set_sending(*socket));
    GYRE_TRY(show_ticket(*socket, ticket_));
    return socket;
  }
  if (pair_ != nullptr) return find_answered();
  GYRE_ASSIGN(std::optional<FileDescriptor> dialed, dialer_.advance());
  if (!dialed.has_value()) return std::shared_ptr<FileDescriptor>();
  return std::make_shared<FileDescriptor>(std::move(*dialed));
}

// Dialed, and taken by the other end: the receiving end of the pair sees that.
Result<std::shared_ptr<FileDescriptor>> TcpSender::find_answered() {
  if (pair_->answered != nullptr) return std::move(pair_->answered);
  if (pair_->dialed != nullptr) return std::shared_ptr<FileDescriptor>();
  if (!pair_->lost.empty()) GYRE_TRY(dialer_.again(std::exchange(pair_->lost, {})));
  GYRE_ASSIGN(std::optional<FileDescriptor> dialed, dialer_.advance());
  if (dialed.has_value()) pair_->dialed = std::make_shared<FileDescriptor>(std::move(*dialed));
  return std::shared_ptr<FileDescriptor>();
}

Status TcpSender::ship() {
  if (stream_->holds_bytes()) {
    const IoResult flushed = stream_->flush();
    if (flushed.outcome == IoResult::Outcome::failed)
      return Status(Code::RemoteError, "send: " + flushed.cause);
  }
  while (leaving_.head() != committed()) {
    std::size_t bytes = 0;
    GYRE_ASSIGN(const std::size_t count, gather(&bytes));
    const IoResult transfer = stream_->send(std::span(parts_).first(count));
    if (transfer.outcome == IoResult::Outcome::blocked) return {};
    if (transfer.outcome != IoResult::Outcome::moved)
      return Status(Code::RemoteError, "send: " + transfer.cause);
    account(transfer.bytes);
    // The kernel's buffer is full; another call would only say so.
    if (transfer.bytes < bytes) return {};
  }
  return {};
}

WireHeader TcpSender::header_of(std::uint64_t index, const SlotHeader& note) const {
  WireHeader header = common_;
  header.sequence = index;
  header.signature = note.flag;
  header.bytes = note.bytes;
  if (note.delivery == DeliveryMode::staged) return header;
  const LentParts& lent = lent_parts(memory_->view, index);
  std::uint64_t end = lent.parts[0].target;
  for (const LentPart& part : std::span(lent.parts).first(lent.count)) {
    if (part.target != end) return header;  // it has several places, which a header cannot say
    end += part.bytes;
  }
  if (lent.call == 0) return header;
  header.call = lent.call;
  header.place = lent.parts[0].target;
  if (note.delivery == DeliveryMode::push) header.flags = wire_flag::final;
  return header;
}

Result<std::size_t> TcpSender::gather(std::size_t* bytes) {
  const FifoView& fifo = memory_->view;
  const std::uint64_t end =
      leaving_.head() + std::min<std::uint64_t>(committed() - leaving_.head(), max_batch);
  std::size_t count = 0;
  std::size_t skip = sent_of_first_;
  const auto add = [&](const void* data, std::size_t size) {
    const std::size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size == skipped) return;
    auto* const first = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    parts_[count++] = {first + skipped, size - skipped};
    *bytes += size - skipped;
  };
  for (std::uint64_t index = leaving_.head(); index != end; ++index) {
    const SlotHeader& note = fifo.note(index);
    if (!note_fits(note, fifo.shape))
      return internal_error(fmt::format("message {} of {} bytes over tcp", index, note.bytes));
    PackedMessage& packed = packed_[index % max_batch];
    packed.header = header_of(index, note);
    if (note.delivery != DeliveryMode::staged) {
      const LentParts& lent = lent_parts(fifo, index);
      add(&packed.header, sizeof packed.header);
      for (const LentPart& part : std::span(lent.parts).first(lent.count))
        add(part.source, part.bytes);
    } else if (note.bytes <= packed.payload.size()) {
      std::memcpy(packed.payload.data(), fifo.slot(index), note.bytes);
      add(&packed, sizeof packed.header + note.bytes);
    } else {
      add(&packed.header, sizeof packed.header);
      add(fifo.slot(index), note.bytes);
    }
  }
  return count;
}

void TcpSender::account(std::size_t bytes) {
  bytes += sent_of_first_;
  while (leaving_.has_message()) {
    const std::size_t whole = sizeof(WireHeader) + leaving_.note().bytes;
    if (bytes < whole) break;
    bytes -= whole;
    leaving_.release();
  }
  sent_of_first_ = bytes;
}

std::uint64_t TcpSender::committed() const {
  // This end's own memory, and its one thread.
  return memory_->view.control->tail.value.load(std::memory_order_relaxed);
}

bool TcpSender::flushed() const {
  return leaving_.head() == committed() && (stream_ == nullptr || !stream_->holds_bytes());
}

// What came later left later, and whoever committed it goes on until all has left.
bool TcpSender::flushed_to(std::uint64_t tail) const {
  if (leaving_.head() != tail) return leaving_.head() > tail;
  return stream_ == nullptr || !stream_->holds_bytes();
}

void TcpSender::arm(WaitSet& set) {
  if (stream_ == nullptr) {
    if (dialer_.descriptor() >= 0) set.add_descriptor(dialer_.descriptor(), POLLOUT);
    return;
  }
  const short own = stream_->joined() && !flushed() ? POLLOUT : 0;
  const auto events = static_cast<short>(own | stream_->wanted_events());
  if (events != 0) set.add_descriptor(stream_->descriptor(), events);
}

}  // namespace gyre::transport
