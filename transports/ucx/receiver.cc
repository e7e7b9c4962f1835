#include "transports/ucx/receiver.h"

#include "lib/base/caught.h"

#include <fmt/core.h>
#include <openssl/crypto.h>

#include <cstring>
#include <utility>

namespace gyre::transport {

UcpReceiver::UcpReceiver(const LinkKey& key, std::shared_ptr<UcpEngine> engine,
                         UcpEngine::Distance distance, std::shared_ptr<FifoMemory> memory,
                         IssuedTicket ticket, std::shared_ptr<HostLine> line, std::string listener,
                         Refuse refuse)
    : UcpEnd("ucx from rank", key.peer, std::move(engine), std::move(memory), std::move(listener)),
      distance_(distance),
      ticket_(std::move(ticket)),
      line_(std::move(line)),
      refuse_(std::move(refuse)),
      window_(UcpWindow::of(memory_->view.shape)),
      arriving_(memory_->view),
      coming_(window_.messages),
      credited_(memory_->view.shape.first),
      counted_(credited_) {}

Result<std::unique_ptr<UcpReceiver>> UcpReceiver::make(
    const LinkKey& key, std::shared_ptr<UcpEngine> engine, UcpEngine::Distance distance,
    std::shared_ptr<FifoMemory> memory, IssuedTicket ticket, std::shared_ptr<HostLine> line,
    std::string listener, Refuse refuse) {
  std::unique_ptr<UcpReceiver> made(
      new UcpReceiver(key, std::move(engine), distance, std::move(memory), std::move(ticket),
                      std::move(line), std::move(listener), std::move(refuse)));
  GYRE_TRY(made->join_engine());
  return made;
}

UcpReceiver::~UcpReceiver() {
  // Without memory for it, the control plane tells the sender.
  (void)caught([&] {
    if (!is_ready_) refuse_();
    return Status();
  });
  const auto held = engine_->hold();
  engine_->leave(link_);
  (void)caught([&] {
    if (error_.ok() && peer_ != nullptr && engine_->may_touch_worker()) GYRE_TRY(say_closing());
    // Where UCX still writes.
    for (Coming& one : coming_)
      if (one.request.has_value()) engine_->keep(std::move(one.request), memory_);
    if (welcoming_.has_value()) engine_->keep(std::move(welcoming_), welcome_);
    return Status();
  });
}

Status UcpReceiver::say_closing() {
  return engine_->tell(*peer_, notice(UcpNoticeKind::closing, arriving_.tail()));
}

Status UcpReceiver::turn() {
  GYRE_TRY(fault_);
  if (hello_ && peer_ == nullptr) GYRE_TRY(join());
  if (peer_ == nullptr) return {};
  if (!is_ready_) GYRE_TRY(await_welcome());
  GYRE_TRY(land());
  GYRE_TRY(check_peer());
  return return_credit();
}

// The first credit says that this end is ready.
Status UcpReceiver::join() {
  GYRE_ASSIGN(peer_, engine_->reach(hello_->sender.worker, distance_));
  if (distance_ == UcpEngine::Distance::another_host) peer_->lines.push_back(line_);
  *welcome_ = notice(UcpNoticeKind::credit, credited_);
  GYRE_ASSIGN(welcoming_, engine_->send(*peer_, *welcome_, {}));
  return {};
}

// UCX may have to connect first, and does so while this end is moved: until then it is not ready.
Status UcpReceiver::await_welcome() {
  GYRE_ASSIGN(is_ready_, engine_->has_completed(welcoming_, "the first credit was not sent"));
  return {};
}

// In order: what is fetched may come later than what is short.
Status UcpReceiver::land() {
  for (;;) {
    Coming& next = coming(arriving_.tail());
    if (next.place == Landing::nowhere || next.landed != next.bytes) return {};
    GYRE_ASSIGN(const bool is_here, engine_->has_completed(next.request, "a message did not come"));
    if (!is_here) return {};
    if (!arriving_.has_credit()) return {};
    if (next.place == Landing::aside && next.bytes > 0)
      std::memcpy(arriving_.place(), aside_[arriving_.tail() & (window_.messages - 1)].data(),
                  next.bytes);
    next.place = Landing::nowhere;
    arriving_.commit(next.bytes, next.signature, DeliveryMode::staged);
  }
}

// A sender that has sent all may have closed the connection.
Status UcpReceiver::check_peer() const {
  if (peer_->failure == loaded::ucx::ok || has_all()) return {};
  return loaded::ucp_failure(engine_->table(), "UCX lost the connection", peer_->failure);
}

Status UcpReceiver::return_credit() {
  const std::uint64_t now = head();
  for (; counted_ != now; ++counted_)
    long_ones_ += coming(counted_).bytes > UcpWindow::max_short_bytes;
  const std::uint64_t untold = now - credited_;
  const bool is_due = (is_asked_ && untold > 0) || untold * 2 >= window_.messages ||
                      long_ones_ * 2 >= window_.slots;
  if (!is_due || is_closed_) return {};
  credited_ = now;
  long_ones_ = 0;
  is_asked_ = false;
  return engine_->tell(*peer_, notice(UcpNoticeKind::credit, now));
}

void UcpReceiver::take(const UcpNotice& notice, const UcpArrival& arrival) noexcept {
  if (!fault_.ok()) return;
  fault_ = caught([&] { return take_in(notice, arrival); });
}

Status UcpReceiver::take_in(const UcpNotice& notice, const UcpArrival& arrival) {
  if (notice.kind == UcpNoticeKind::hello) return on_hello(arrival);
  if (notice.kind == UcpNoticeKind::message) return on_message(notice, arrival);
  if (arrival.size() != 0 || !hello_ || notice.kind == UcpNoticeKind::credit)
    return Status(Code::RemoteError, "the sender sent a notice that is not ours");
  if (notice.kind == UcpNoticeKind::closing) return on_closing(notice);
  if (notice.kind == UcpNoticeKind::ask) is_asked_ = true;
  return {};
}

// Who does not know the ticket is a stranger, and does no harm.
Status UcpReceiver::on_hello(const UcpArrival& arrival) {
  if (hello_ || arrival.promise != nullptr) return {};
  std::optional<UcpHello> hello = decode_ucp_hello(
      {reinterpret_cast<const std::uint8_t*>(arrival.bytes.data()), arrival.bytes.size()});
  const trust::Ticket& ticket = ticket_.get().ticket;
  if (hello && CRYPTO_memcmp(hello->ticket.data(), ticket.data(), ticket.size()) == 0)
    hello_ = std::move(hello);
  if (hello_) peers_link_ = hello_->sender.link;
  return {};
}

// Whether such a message, or such a part of one, may come now.
Status UcpReceiver::check_message(const UcpNotice& notice, const UcpArrival& arrival) const {
  const auto malformed = [](std::string why) { return Status(Code::RemoteError, std::move(why)); };
  const bool is_awaited = hello_ && notice.number - arriving_.tail() < window_.messages &&
                          window_.takes(notice.number - head(), notice.whole);
  if (!is_awaited)
    return malformed(
        fmt::format("message {} came in place of {}", notice.number, arriving_.tail()));
  const std::uint64_t slot_bytes = memory_->view.shape.slot_bytes;
  if (notice.whole > slot_bytes)
    return malformed(fmt::format("{} bytes of payload; a slot has {}", notice.whole, slot_bytes));
  const bool is_whole = notice.offset == 0 && arrival.size() == notice.whole;
  const bool lies_within =
      notice.offset < notice.whole && arrival.size() <= notice.whole - notice.offset;
  if (!is_whole && (!lies_within || arrival.size() == 0 || arrival.promise != nullptr))
    return malformed(fmt::format("{} bytes at {} are no part of a message of {} bytes",
                                 arrival.size(), notice.offset, notice.whole));
  return {};
}

// Begins the message with the first of its parts, in whatever order they come.
Status UcpReceiver::begin_or_check(const UcpNotice& notice, std::size_t bytes, Coming& message) {
  const auto repeated = [&](std::string_view how) {
    return Status(Code::RemoteError, fmt::format("message {} came twice{}", notice.number, how));
  };
  if (message.place == Landing::nowhere) {
    message.place = notice.number - head() < window_.slots ? Landing::slot : Landing::aside;
    message.bytes = notice.whole;
    message.signature = notice.signature;
    message.landed = 0;
  } else if (message.bytes != notice.whole || message.signature != notice.signature) {
    return repeated(", and differs");
  } else if (bytes == 0 || bytes > message.bytes - message.landed) {
    return repeated("");
  }
  message.landed += static_cast<std::uint32_t>(bytes);
  return {};
}

std::byte* UcpReceiver::place_of(std::uint64_t number, const Coming& message) {
  if (message.place == Landing::slot) return memory_->view.slot(number);
  if (aside_.empty()) aside_.resize(window_.messages);
  std::vector<std::byte>& memory = aside_[number & (window_.messages - 1)];
  if (memory.size() < message.bytes) memory.resize(message.bytes);
  return memory.data();
}

Status UcpReceiver::on_message(const UcpNotice& notice, const UcpArrival& arrival) {
  GYRE_TRY(check_message(notice, arrival));
  Coming& one = coming(notice.number);
  GYRE_TRY(begin_or_check(notice, arrival.size(), one));
  std::byte* const place = place_of(notice.number, one);
  if (arrival.promise == nullptr) {
    if (!arrival.bytes.empty())
      std::memcpy(place + notice.offset, arrival.bytes.data(), arrival.bytes.size());
  } else if (one.place == Landing::slot) {
    GYRE_ASSIGN(one.request, engine_->fetch(arrival, place));
  } else {
    return Status(Code::RemoteError,
                  fmt::format("message {} is short, and did not come whole", notice.number));
  }
  return land();
}

Status UcpReceiver::on_closing(const UcpNotice& notice) {
  if (is_closed_ || notice.number - arriving_.tail() > window_.messages)
    return Status(Code::RemoteError, fmt::format("the sender closed after message {}; {} have come",
                                                 notice.number, arriving_.tail()));
  is_closed_ = true;
  due_ = notice.number;
  return {};
}

std::uint64_t UcpReceiver::head() const {
  // Pairs with the release in SlotReader::release, by the thread that uses the connection.
  return memory_->view.control->head.value.load(std::memory_order_acquire);
}

bool UcpReceiver::at_end() const {
  const auto held = engine_->hold();
  return has_all() && head() == arriving_.tail();
}

// If the end came before this, somebody waits for a message that will not come. If it comes while
// UCX is armed, nobody has had the chance to see it.
void UcpReceiver::arm(WaitSet& set) {
  if (error_.ok() && at_end()) fail(Status(Code::RemoteError, "the peer closed the connection"));
  UcpEnd::arm(set);
}

}  // namespace gyre::transport
