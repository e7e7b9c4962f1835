#include "transports/plugin/plugin_receiver.h"

#include "lib/base/log.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

namespace gyre::transport {

PluginReceiver::PluginReceiver(std::int32_t peer, std::shared_ptr<PluginContext> context,
                               PluginListener listener, const trust::Ticket& ticket,
                               std::shared_ptr<FifoMemory> memory)
    : peer_(peer),
      what_(fmt::format("{} from rank {}", context->plugin().name, peer)),
      memory_(std::move(memory)),
      context_(std::move(context)),
      ticket_(ticket),
      listener_(std::move(listener)),
      arriving_(memory_->view) {}

Status PluginReceiver::progress() {
  if (!error_.ok() || closed_) return error_;
  Status status = ready() ? Status() : join();
  if (status.ok() && ready()) status = land();
  if (!status.ok()) fail(std::move(status));
  return error_;
}

void PluginReceiver::fail(Status status) {
  stream_.reset();
  error_ = link_failure(std::move(status), what_, peer_);
}

Status PluginReceiver::join() {
  for (std::size_t i = 0; i < max_newcomers; ++i) {
    GYRE_ASSIGN(PluginHandle came, context_->accept(listener_));
    if (!came.has_value()) break;
    if (newcomers_.size() == max_newcomers) newcomers_.pop_front();
    newcomers_.push_back({.stream = PluginStream(context_, std::move(came))});
  }
  for (auto one = newcomers_.begin(); one != newcomers_.end();) {
    switch (look_at(*one)) {
      case Showing::not_yet:
        ++one;
        break;
      case Showing::wrong:
        log_info(Subsystem::net, "{}: a stream came without the link's ticket", what_);
        one = newcomers_.erase(one);
        break;
      case Showing::right:
        stream_.emplace(std::move(one->stream));
        newcomers_.clear();
        listener_.reset();
        return {};
    }
  }
  return {};
}

// Whoever fails before has not proved to be the peer, and another one may come.
PluginReceiver::Showing PluginReceiver::look_at(Newcomer& newcomer) const {
  while (newcomer.bytes < sizeof newcomer.hello) {
    auto* const hello = reinterpret_cast<std::byte*>(&newcomer.hello);
    const gyreTransportPart_t rest =
        part_of(hello + newcomer.bytes, sizeof newcomer.hello - newcomer.bytes);
    const auto transfer = newcomer.stream.receive({&rest, 1});
    if (!transfer.ok() || transfer->closed) return Showing::wrong;
    if (transfer->bytes == 0) return Showing::not_yet;
    newcomer.bytes += transfer->bytes;
  }
  const bool is_right =
      newcomer.hello.magic == trust::TicketHello().magic && newcomer.hello.ticket == ticket_;
  return is_right ? Showing::right : Showing::wrong;
}

Status PluginReceiver::land() {
  for (;;) {
    if (next_bytes_ == sizeof next_ && !has_header_) GYRE_TRY(take_header());
    if (has_header_ && !arriving_.has_credit()) return {};
    if (is_whole()) {
      arriving_.commit(header_.bytes, header_.signature, DeliveryMode::staged);
      has_header_ = false;
      continue;
    }
    const std::size_t missing = has_header_ ? header_.bytes - landed_ : 0;
    const std::array<gyreTransportPart_t, 2> parts = {
        part_of(has_header_ ? arriving_.place() + landed_ : nullptr, missing),
        part_of(reinterpret_cast<std::byte*>(&next_) + next_bytes_, sizeof next_ - next_bytes_)};
    GYRE_ASSIGN(const PluginStream::Moved transfer,
                stream_->receive(missing > 0 ? std::span(parts) : std::span(parts).last(1)));
    if (transfer.closed) return note_closing();
    if (transfer.bytes == 0) return {};
    const std::size_t into_slot = std::min(transfer.bytes, missing);
    landed_ += into_slot;
    next_bytes_ += transfer.bytes - into_slot;
  }
}

Status PluginReceiver::take_header() {
  header_ = std::exchange(next_, {});
  next_bytes_ = 0;
  const auto refuse = [](const std::string& fault) {
    return Status(Code::RemoteError, "a message with a header that is not ours: " + fault);
  };
  if (header_.magic != PieceHeader().magic)
    return refuse(fmt::format("magic {:#x}", header_.magic));
  if (header_.sequence != arriving_.tail())
    return refuse(fmt::format("number {}; expected {}", header_.sequence, arriving_.tail()));
  if (header_.bytes > memory_->view.shape.slot_bytes)
    return refuse(fmt::format("{} bytes of payload; a slot has {}", header_.bytes,
                              memory_->view.shape.slot_bytes));
  has_header_ = true;
  landed_ = 0;
  return {};
}

Status PluginReceiver::note_closing() {
  if (has_header_)
    return Status(Code::RemoteError, fmt::format("the peer closed after {} of a message's {} bytes",
                                                 landed_, header_.bytes));
  if (next_bytes_ > 0)
    return Status(Code::RemoteError, "the peer closed in the middle of a message's header");
  closed_ = true;
  return {};
}

Status PluginReceiver::look_at_peer(std::int64_t /*now_ns*/, std::int64_t limit_ns) {
  if (!error_.ok() || !ready()) return error_;
  Status checked = stream_->check(limit_ns);
  if (!checked.ok()) fail(std::move(checked));
  return error_;
}

void PluginReceiver::arm(WaitSet& set) {
  if (!error_.ok()) return;
  if (!ready()) {
    context_->arm(listener_, set);
    for (const Newcomer& one : newcomers_) one.stream.arm(false, set);
    return;
  }
  // This end waits for a message that will not come.
  if (closed_ && arriving_.drained())
    return fail(Status(Code::RemoteError, "the peer closed the connection"));
  if (!closed_ && arriving_.has_credit()) stream_->arm(false, set);
}

}  // namespace gyre::transport
