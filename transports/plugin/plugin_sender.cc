#include "transports/plugin/plugin_sender.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::transport {

PluginSender::PluginSender(std::int32_t peer, std::shared_ptr<PluginContext> context,
                           PluginHandle handle, const trust::Ticket& ticket,
                           std::shared_ptr<FifoMemory> memory)
    : peer_(peer),
      what_(fmt::format("{} to rank {}", context->plugin().name, peer)),
      memory_(std::move(memory)),
      leaving_(memory_->view),
      hello_{.ticket = ticket},
      stream_(std::move(context), std::move(handle)) {}

Status PluginSender::progress() {
  if (!error_.ok()) return error_;
  Status status = advance();
  if (!status.ok()) fail(std::move(status));
  return error_;
}

void PluginSender::fail(Status status) { error_ = link_failure(std::move(status), what_, peer_); }

Status PluginSender::advance() {
  while (!ready()) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&hello_);
    const gyreTransportPart_t rest = part_of(bytes + hello_sent_, sizeof hello_ - hello_sent_);
    GYRE_ASSIGN(const PluginStream::Moved transfer, stream_.send({&rest, 1}));
    if (transfer.bytes == 0) return {};
    hello_sent_ += transfer.bytes;
    holds_bytes_ = true;
  }
  GYRE_TRY(ship());
  if (holds_bytes_) {
    GYRE_ASSIGN(const bool done, stream_.flush());
    holds_bytes_ = !done;
  }
  return {};
}

Status PluginSender::ship() {
  while (leaving_.head() != committed()) {
    GYRE_ASSIGN(const std::span<const gyreTransportPart_t> parts, gather());
    GYRE_ASSIGN(const PluginStream::Moved transfer, stream_.send(parts));
    if (transfer.bytes == 0) return {};
    holds_bytes_ = true;
    account(transfer.bytes);
  }
  return {};
}

// What has not left, from the first byte on.
Result<std::span<const gyreTransportPart_t>> PluginSender::gather() {
  const FifoView& fifo = memory_->view;
  const std::uint64_t end =
      leaving_.head() + std::min<std::uint64_t>(committed() - leaving_.head(), max_batch);
  std::size_t count = 0, skip = sent_of_first_;
  const auto add = [&](const void* data, std::size_t size) {
    const std::size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size == skipped) return;
    parts_[count++] = part_of(static_cast<const std::byte*>(data) + skipped, size - skipped);
  };
  for (std::uint64_t index = leaving_.head(); index != end; ++index) {
    const SlotHeader& note = fifo.note(index);
    if (note.delivery != DeliveryMode::staged || !note_fits(note, fifo.shape))
      return internal_error(fmt::format("message {} of {} bytes with delivery {} over a plug-in",
                                        index, note.bytes, static_cast<int>(note.delivery)));
    PieceHeader& header = headers_[index % max_batch];
    header = {.bytes = note.bytes, .sequence = index, .signature = note.flag};
    add(&header, sizeof header);
    add(fifo.slot(index), note.bytes);
  }
  return std::span<const gyreTransportPart_t>(parts_).first(count);
}

void PluginSender::account(std::size_t bytes) {
  bytes += sent_of_first_;
  while (leaving_.has_message()) {
    const std::size_t whole = sizeof(PieceHeader) + leaving_.note().bytes;
    if (bytes < whole) break;
    bytes -= whole;
    leaving_.release();
  }
  sent_of_first_ = bytes;
}

std::uint64_t PluginSender::committed() const {
  // This end's own memory, and its one thread.
  return memory_->view.control->tail.value.load(std::memory_order_relaxed);
}

Status PluginSender::look_at_peer(std::int64_t /*now_ns*/, std::int64_t limit_ns) {
  if (!error_.ok()) return error_;
  Status checked = stream_.check(limit_ns);
  if (!checked.ok()) fail(std::move(checked));
  return error_;
}

void PluginSender::arm(WaitSet& set) {
  if (error_.ok() && (!ready() || !flushed())) stream_.arm(true, set);
}

}  // namespace gyre::transport
