#include "transports/tcp/sending_rail.h"

#include "lib/base/descriptor_mark.h"
#include "lib/base/log.h"
#include "transports/tcp/socket.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace gyre::transport {
namespace {

// Which message it is, and where it belongs.
WireHeader placed_header(const FifoView& fifo, const WireHeader& common, std::uint64_t index,
                         const SlotHeader& note) {
  WireHeader header = common;
  header.sequence = index;
  header.signature = note.flag;
  if (note.delivery == DeliveryMode::staged) return header;
  const LentParts& lent = lent_parts(fifo, index);
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

// `bytes` from `offset` on of a message's payload: in its slot, or in lent parts.
template <typename Add>
void add_payload(const FifoView& fifo, std::uint64_t index, std::uint64_t offset,
                 std::uint64_t bytes, const Add& add) {
  if (fifo.note(index).delivery == DeliveryMode::staged)
    return add(fifo.slot(index) + offset, bytes);
  const LentParts& lent = lent_parts(fifo, index);
  for (const LentPart& part : std::span(lent.parts).first(lent.count)) {
    const std::uint64_t skipped = std::min(offset, part.bytes);
    const std::uint64_t taken = std::min(bytes, part.bytes - skipped);
    offset -= skipped;
    bytes -= taken;
    if (taken > 0) add(part.source + skipped, taken);
  }
}

}  // namespace

SendingRail::SendingRail(RailTerms terms, const trust::Ticket& ticket, TcpDialer dialer,
                         std::shared_ptr<SharedSocket> pair)
    : terms_(std::move(terms)),
      ticket_(ticket),
      pair_(std::move(pair)),
      dialer_(std::move(dialer)) {}

// The other way may go on: the peer learns here that nothing more comes.
SendingRail::~SendingRail() {
  // If the program has closed our descriptors, the number may be a file of its own.
  if (stream_ == nullptr || !descriptor_mark_stands()) return;
  end_path_watch(stream_->descriptor());
  if (pair_ != nullptr) ::shutdown(stream_->descriptor(), SHUT_WR);
}

Status SendingRail::judge(std::int64_t now_ns, std::int64_t limit_ns) {
  const bool waits_for_answer = stream_ == nullptr && pair_ != nullptr && pair_->dialed != nullptr;
  if (stream_ == nullptr && !waits_for_answer) return {};
  const int socket = waits_for_answer ? pair_->dialed->get() : stream_->descriptor();
  return judge_path(socket, path_, now_ns, limit_ns);
}

Status SendingRail::join() {
  if (stream_ == nullptr) {
    GYRE_ASSIGN(std::shared_ptr<FileDescriptor> socket, find_socket());
    if (socket == nullptr) return {};
    address_ = peer_address(*socket);
    set_path_questions(socket->get(), terms_.liveness_ns);
    if (terms_.is_one_of_several) GYRE_TRY(keep_backlog_short(*socket));
    log_info(Subsystem::net, "rank {} is at {}", terms_.peer, address_);
    GYRE_ASSIGN(stream_,
                make_stream(terms_.security, std::move(socket), trust::SessionRole::client));
  }
  if (stream_->joined()) return {};
  Status joined = stream_->join();
  if (joined.code() != Code::RemoteError || stream_->has_heard()) return joined;
  stream_.reset();
  return dialer_.again(joined.message());
}

Result<std::shared_ptr<FileDescriptor>> SendingRail::find_socket() {
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
Result<std::shared_ptr<FileDescriptor>> SendingRail::find_answered() {
  if (pair_->answered != nullptr) return std::move(pair_->answered);
  if (pair_->dialed != nullptr) return std::shared_ptr<FileDescriptor>();
  if (!pair_->lost.empty()) GYRE_TRY(dialer_.again(std::exchange(pair_->lost, {})));
  GYRE_ASSIGN(std::optional<FileDescriptor> dialed, dialer_.advance());
  if (dialed.has_value()) pair_->dialed = std::make_shared<FileDescriptor>(std::move(*dialed));
  return std::shared_ptr<FileDescriptor>();
}

Status SendingRail::ship(const FifoView& fifo, const WireHeader& common) {
  if (stream_->holds_bytes()) {
    const IoResult flushed = stream_->flush();
    if (flushed.outcome == IoResult::Outcome::failed)
      return Status(Code::RemoteError, "send: " + flushed.cause);
  }
  while (!is_free()) {
    std::size_t bytes = 0;
    GYRE_ASSIGN(const std::size_t count, gather(fifo, common, &bytes));
    const IoResult transfer = stream_->send(std::span(parts_).first(count));
    if (transfer.outcome == IoResult::Outcome::blocked) return {};
    if (transfer.outcome != IoResult::Outcome::moved)
      return Status(Code::RemoteError, "send: " + transfer.cause);
    account(fifo, transfer.bytes);
    // The kernel's buffer is full; another call would only say so.
    if (transfer.bytes < bytes) return {};
  }
  return {};
}

Result<std::size_t> SendingRail::gather(const FifoView& fifo, const WireHeader& common,
                                        std::size_t* bytes) {
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
  for (std::uint64_t index = run_.first; index != run_.end; ++index) {
    const SlotHeader& note = fifo.note(index);
    if (!note_fits(note, fifo.shape))
      return internal_error(fmt::format("message {} of {} bytes over tcp", index, note.bytes));
    PackedMessage& packed = packed_[index % max_batch];
    const bool is_packed =
        note.delivery == DeliveryMode::staged && bytes_of(note) <= packed.payload.size();
    if (index == packed_end_) {
      packed.header = header_of(fifo, common, index);
      if (is_packed)
        std::memcpy(packed.payload.data(), fifo.slot(index) + run_.offset, bytes_of(note));
      ++packed_end_;
    }
    add(&packed, sizeof packed.header + (is_packed ? bytes_of(note) : 0));
    if (!is_packed) add_payload(fifo, index, run_.offset, bytes_of(note), add);
  }
  return count;
}

WireHeader SendingRail::header_of(const FifoView& fifo, const WireHeader& common,
                                  std::uint64_t index) const {
  const SlotHeader& note = fifo.note(index);
  WireHeader header = placed_header(fifo, common, index, note);
  header.offset = run_.offset;
  header.bytes = bytes_of(note);
  if (run_.offset + bytes_of(note) < note.bytes) header.flags |= wire_flag::more;
  if (!terms_.has_checksums) return header;
  Checksum sum = begin_checksum(header);
  add_payload(fifo, index, header.offset, header.bytes,
              [&](const std::byte* data, std::size_t bytes) {
                sum.add({data, bytes});
              });
  header.checksum = sum.value();
  return header;
}

void SendingRail::account(const FifoView& fifo, std::size_t bytes) {
  bytes += sent_of_first_;
  while (!is_free()) {
    const std::size_t whole = sizeof(WireHeader) + bytes_of(fifo.note(run_.first));
    if (bytes < whole) break;
    bytes -= whole;
    ++run_.first;
  }
  sent_of_first_ = bytes;
}

void SendingRail::look(std::int64_t now_ns) {
  if (const auto seen = look_at_deliveries(stream_->descriptor())) pace_.look(*seen, now_ns);
}

std::uint64_t SendingRail::left_bytes(const FifoView& fifo) const {
  std::uint64_t bytes = 0;
  for (std::uint64_t index = run_.first; index != run_.end; ++index)
    bytes += sizeof(WireHeader) + bytes_of(fifo.note(index));
  return bytes - sent_of_first_;
}

void SendingRail::arm(WaitSet& set, bool has_messages) const {
  if (stream_ == nullptr) {
    if (dialer_.descriptor() >= 0) set.add_descriptor(dialer_.descriptor(), POLLOUT);
    return;
  }
  const bool has_bytes = has_messages || !is_free() || stream_->holds_bytes();
  const short own = stream_->joined() && has_bytes ? POLLOUT : 0;
  const auto events = static_cast<short>(own | stream_->wanted_events());
  if (events != 0) set.add_descriptor(stream_->descriptor(), events);
}

}  // namespace gyre::transport
