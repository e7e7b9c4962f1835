#include "transports/ucx/sender.h"

#include "lib/base/caught.h"
#include "lib/base/log.h"
#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gyre::transport {
namespace {

// Of each part of a message but the last.
std::uint64_t part_bytes(std::uint64_t whole, const UcpPeer& peer) {
  return peer.packet_bytes > 0 ? peer.packet_bytes : std::max<std::uint64_t>(1, whole);
}

std::uint64_t part_count(std::uint64_t whole, const UcpPeer& peer) {
  return std::max<std::uint64_t>(1, divide_up(whole, part_bytes(whole, peer)));
}

}  // namespace

UcpSender::UcpSender(const LinkKey& key, std::shared_ptr<UcpEngine> engine,
                     std::shared_ptr<UcpPeer> peer, std::shared_ptr<FifoMemory> memory,
                     UcpTarget target, AsksForRefusal is_refused)
    : UcpEnd("ucx to rank", key.peer, std::move(engine), std::move(memory),
             target.receiver.listener),
      target_(std::move(target)),
      is_refused_(std::move(is_refused)),
      window_(UcpWindow::of(memory_->view.shape)),
      leaving_(memory_->view),
      sent_(memory_->view.shape.first),
      in_flight_(std::make_shared<std::vector<LeavingPart>>(
          window_.slots * part_count(memory_->view.shape.slot_bytes, *peer))),
      credited_(sent_) {
  peer_ = std::move(peer);
  peers_link_ = target_.receiver.link;
}

Result<std::unique_ptr<UcpSender>> UcpSender::make(const LinkKey& key,
                                                   std::shared_ptr<UcpEngine> engine,
                                                   std::shared_ptr<UcpPeer> peer,
                                                   std::shared_ptr<FifoMemory> memory,
                                                   UcpTarget target, AsksForRefusal is_refused) {
  const std::size_t lending =
      key.traffic == TrafficClass::point_to_point ? memory->view.shape.slot_count : std::size_t{0};
  std::unique_ptr<UcpSender> made(new UcpSender(key, std::move(engine), std::move(peer),
                                                std::move(memory), std::move(target),
                                                std::move(is_refused)));
  made->lent_.resize(lending);
  if (lending > 0) made->memory_->view.lent = made->lent_.data();
  GYRE_TRY(made->join_engine());
  return made;
}

UcpSender::~UcpSender() {
  const auto held = engine_->hold();
  engine_->leave(link_);
  // Without memory for it, the control plane tells the receiver.
  (void)caught([&] {
    if (error_.ok() && has_said_hello_ && engine_->may_touch_worker())
      GYRE_TRY(engine_->tell(*peer_, notice(UcpNoticeKind::closing, sent_)));
    keep_memory();
    return Status();
  });
}

// What UCX still reads.
void UcpSender::keep_memory() {
  const auto memory =
      std::make_shared<std::pair<decltype(memory_), decltype(in_flight_)>>(memory_, in_flight_);
  for (LeavingPart& one : *in_flight_)
    if (one.request.has_value()) engine_->keep(std::move(one.request), memory);
  if (sweep_.has_value()) engine_->keep(std::move(sweep_), swept_);
}

Status UcpSender::turn() {
  if (has_lied_) return Status(Code::RemoteError, "the receiver sent a notice that is not ours");
  if (!has_said_hello_) GYRE_TRY(say_hello());
  if (line_ != nullptr && line_->is_dialing()) line_->advance();
  GYRE_TRY(check_peer());
  if (!has_credit_) {
    if (is_closed_ || is_refused_())
      return Status(Code::RemoteError, "the receiver has ended before it joined");
    return {};
  }
  if (!std::exchange(is_ready_, true))
    log_info(Subsystem::net, "ucx to rank {}: UCX {} by {}", peer_rank_,
             loaded::release_of(engine_->table()), peer_->way);
  GYRE_TRY(retire());
  GYRE_TRY(ship());
  GYRE_TRY(retire());
  return sweep();
}

// A few short messages leave as soon as they are committed.
bool UcpSender::needs_no_news() const {
  const bool is_free = is_ready_ && !has_lied_ && !is_closed_ &&
                       peer_->failure == loaded::ucx::ok && leaving_.head() == sent_ &&
                       !sweep_.has_value();
  std::uint64_t bytes = unswept_bytes_, number = sent_;
  for (; is_free && number != committed(); ++number) {
    const SlotHeader& said = memory_->view.note(number);
    if (!window_.takes(number - credited_, said.bytes)) break;
    bytes += sizeof(UcpNotice) + said.bytes;
  }
  return is_free && number == committed() && bytes <= max_unswept_bytes;
}

Status UcpSender::say_hello() {
  UcpNotice hello = notice(UcpNoticeKind::hello);
  has_said_hello_ = true;
  if (!target_.host_address.empty() && !std::exchange(peer_->has_dialed, true)) {
    line_ = std::make_shared<HostLine>();
    line_->dial(target_.host_address, target_.ticket);
    peer_->lines.push_back(line_);
  }
  return engine_->tell(*peer_, hello,
                       encode(UcpHello{target_.ticket, {link_, {}, target_.own_address}}));
}

// A receiver that has got all may have closed the connection before UCX knew that here.
Status UcpSender::check_peer() {
  const bool is_lost = peer_->failure != loaded::ucx::ok;
  if (!is_lost && !is_closed_) return {};
  const bool has_all = is_closed_ && static_cast<std::int64_t>(committed() - arrived_) <= 0;
  if (has_all) {
    while (leaving_.head() != committed()) leaving_.release();
    sent_ = leaving_.head();
    parts_left_ = parts_sent_;
    unswept_bytes_ = 0;
    return {};
  }
  if (is_closed_) return Status(Code::RemoteError, "the peer closed the connection");
  return loaded::ucp_failure(engine_->table(), "UCX lost the connection", peer_->failure);
}

Status UcpSender::retire() {
  for (; parts_left_ != parts_sent_; ++parts_left_) {
    LeavingPart& one = part(parts_left_);
    GYRE_ASSIGN(const bool has_left, engine_->has_completed(one.request, "a message was not sent"));
    if (!has_left) return {};
    if (one.is_last) leaving_.release();
  }
  return {};
}

Status UcpSender::ship() {
  const FifoView& fifo = memory_->view;
  while (sent_ != committed()) {
    const SlotHeader& said = fifo.note(sent_);
    if (!window_.takes(sent_ - credited_, said.bytes)) return ask_for_credit();
    GYRE_TRY(ship_message(said));
  }
  return {};
}

Status UcpSender::ship_message(const SlotHeader& said) {
  GYRE_ASSIGN(const std::span<const std::byte> bytes, find_bytes(said));
  const std::uint64_t each = part_bytes(bytes.size(), *peer_);
  for (std::uint64_t offset = 0; offset == 0 || offset < bytes.size(); offset += each)
    GYRE_TRY(ship_part(said, bytes.subspan(offset, std::min(each, bytes.size() - offset)), offset));
  ++sent_;
  return {};
}

Status UcpSender::ship_part(const SlotHeader& said, std::span<const std::byte> bytes,
                            std::uint64_t offset) {
  LeavingPart& leaving = part(parts_sent_);
  leaving.notice = notice(UcpNoticeKind::message, sent_);
  leaving.notice.signature = said.flag;
  leaving.notice.offset = static_cast<std::uint32_t>(offset);
  leaving.notice.whole = said.bytes;
  leaving.is_last = offset + bytes.size() == said.bytes;
  GYRE_ASSIGN(leaving.request, engine_->send(*peer_, leaving.notice, bytes));
  ++parts_sent_;
  const bool is_copied = bytes.size() <= max_copied_bytes;
  unswept_bytes_ = is_copied ? unswept_bytes_ + sizeof(UcpNotice) + bytes.size() : 0;
  return {};
}

// In its slot, or where it is lent. UCX sends one piece: several are put together in the slot.
Result<std::span<const std::byte>> UcpSender::find_bytes(const SlotHeader& said) {
  const FifoView& fifo = memory_->view;
  std::byte* const slot = fifo.slot(sent_);
  const bool is_lent = said.delivery == DeliveryMode::pull && !lent_.empty();
  bool fits = note_fits(said, fifo.shape) && (is_lent || said.delivery == DeliveryMode::staged);
  if (!is_lent && fits) return std::span<const std::byte>(slot, said.bytes);
  std::uint64_t whole = 0;
  const LentParts parts = is_lent ? lent_parts(fifo, sent_) : LentParts();
  for (std::size_t i = 0; i < parts.count; ++i) {
    fits = fits && parts.parts[i].target == whole && parts.parts[i].bytes <= said.bytes - whole;
    if (fits) whole += parts.parts[i].bytes;
  }
  if (!fits || whole != said.bytes)
    return internal_error(fmt::format("message {} of {} bytes with delivery {} over ucx", sent_,
                                      said.bytes, static_cast<int>(said.delivery)));
  if (parts.count == 1) return std::span(parts.parts[0].source, said.bytes);
  for (std::size_t i = 0; i < parts.count; ++i)
    if (parts.parts[i].source != slot + parts.parts[i].target)
      std::memcpy(slot + parts.parts[i].target, parts.parts[i].source, parts.parts[i].bytes);
  return std::span<const std::byte>(slot, said.bytes);
}

std::shared_ptr<const void> UcpSender::hold(const void* memory, std::uint64_t) noexcept {
  return std::shared_ptr<const void>(std::shared_ptr<const void>(), memory);
}

// The communicator is broken: nothing more goes to that peer.
void UcpSender::cut_off() noexcept {
  const auto held = engine_->hold();
  engine_->cut(*peer_);
}

Status UcpSender::ask_for_credit() {
  if (std::exchange(has_asked_, true)) return {};
  return engine_->tell(*peer_, notice(UcpNoticeKind::ask));
}

Status UcpSender::sweep() {
  GYRE_ASSIGN(const bool is_swept, engine_->has_completed(sweep_, "a notice was not sent"));
  if (!is_swept) return {};
  if (leaving_.head() != committed() || unswept_bytes_ <= max_unswept_bytes) return {};
  *swept_ = notice(UcpNoticeKind::sweep);
  unswept_bytes_ = 0;
  GYRE_ASSIGN(sweep_, engine_->send(*peer_, *swept_, {}));
  return {};
}

// What came later left later, and whoever committed it goes on until all has left.
bool UcpSender::flushed_to(std::uint64_t tail) const {
  if (leaving_.head() != tail) return static_cast<std::int64_t>(leaving_.head() - tail) > 0;
  return !sweep_.has_value() && unswept_bytes_ <= max_unswept_bytes;
}

std::uint64_t UcpSender::committed() const {
  // This end's own memory, and its one thread.
  return memory_->view.control->tail.value.load(std::memory_order_relaxed);
}

void UcpSender::take(const UcpNotice& notice, const UcpArrival& arrival) noexcept {
  const std::uint64_t unknown = sent_ - credited_;
  if (arrival.size() != 0 || notice.number - credited_ > unknown) {
    has_lied_ = true;
  } else if (notice.kind == UcpNoticeKind::credit) {
    has_credit_ = true;
    has_asked_ = false;
    credited_ = notice.number;
  } else if (notice.kind == UcpNoticeKind::closing) {
    is_closed_ = true;
    arrived_ = notice.number;
  } else {
    has_lied_ = true;
  }
}

}  // namespace gyre::transport
