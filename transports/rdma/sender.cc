#include "transports/rdma/sender.h"

#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

namespace gyre::transport {
namespace {

// Beside messages and credits: first and last notices, a question to the NIC, a grant or its
// receipt, and for each rail that may be lost a question to the peer, its answer, and that again.
constexpr std::uint32_t spare_requests = 5 + 3 * max_rails;

}  // namespace

QueueDepth RdmaWindow::depth() const {
  return {messages * (writes + 1) + spare_requests, messages + spare_requests};
}

RdmaWindow fit_window(const FifoShape& shape,
                      const std::vector<std::shared_ptr<RdmaDevice>>& devices, std::size_t pairs) {
  RdmaWindow window{std::min(shape.slot_count, max_window), 1};
  for (const auto& device : devices) {
    const std::uint64_t writes = divide_up(shape.slot_bytes, device->max_write_bytes());
    window.writes = std::max(window.writes,
                             static_cast<std::uint32_t>(std::min<std::uint64_t>(writes, 1 << 16)));
  }
  window.writes += LentParts::most - 1;  // each part may begin another one
  const auto fits = [&](const std::shared_ptr<RdmaDevice>& device) {
    const QueueDepth depth = window.depth();
    const std::uint64_t entries = RdmaQueues::completion_entries(pairs, depth);
    return depth.send <= static_cast<std::uint64_t>(device->limits().max_qp_wr) &&
           entries <= static_cast<std::uint64_t>(device->limits().max_cqe);
  };
  while (window.messages > 0 && !std::ranges::all_of(devices, fits)) window.messages /= 2;
  return window;
}

RdmaSender::RdmaSender(const LinkKey& key, std::shared_ptr<FifoMemory> memory,
                       std::vector<RdmaRail> rails, RdmaShared shared, RdmaWindow window,
                       std::uint32_t ring, IsRefused is_refused)
    : RdmaEnd(std::move(memory), std::move(rails), std::move(shared), "rdma to rank", key.peer),
      window_(window),
      ring_(ring),
      is_refused_(std::move(is_refused)),
      leaving_(memory_->view),
      posted_(memory_->view.shape.first),
      credited_(posted_),
      unfinished_(ring, 0),
      requests_(window.writes),
      spans_(window.writes) {}

RdmaSender::~RdmaSender() {
  if (error_.ok() && flushed()) link_.close(posted_, std::move(notes_));
}

Result<std::unique_ptr<RdmaSender>> RdmaSender::make(const LinkKey& key,
                                                     std::shared_ptr<FifoMemory> memory,
                                                     std::vector<RdmaRail> rails, RdmaShared shared,
                                                     RdmaWindow window, std::uint32_t ring,
                                                     IsRefused is_refused) {
  std::unique_ptr<RdmaSender> made(new RdmaSender(key, std::move(memory), std::move(rails),
                                                  std::move(shared), window, ring,
                                                  std::move(is_refused)));
  GYRE_TRY(made->prepare());
  return made;
}

Status RdmaSender::prepare() {
  GYRE_TRY(register_memory(ring_, 0));
  lent_.resize(memory_->view.shape.slot_count);
  memory_->view.lent = lent_.data();
  std::vector<std::optional<RdmaAddress>> there;
  for (const RdmaRail& rail : link_.rails())
    there.push_back(rail.queues != nullptr ? std::optional(rail.there) : std::nullopt);
  GYRE_TRY(link_.join(there));
  while (link_.next_lost()) {
    // The answer does not name it, and that says enough.
  }
  find_paths();
  return {};
}

std::vector<std::optional<RdmaAddress>> RdmaSender::addresses(const std::string& host_name) const {
  std::vector<std::optional<RdmaAddress>> all;
  for (const RdmaRail& rail : link_.rails()) {
    std::optional<RdmaAddress>& own = all.emplace_back();
    if (rail.queues == nullptr) continue;
    own = rail.queues->address(host_name);
    own->notes = {reinterpret_cast<std::uintptr_t>(grant_place(0)), rail.notes.get()->rkey};
  }
  return all;
}

// By rails first: two pieces go over two ports, not over two queue pairs of one. Over planned rails
// alone, as long as there is one: they come first.
void RdmaSender::find_paths() {
  paths_.clear();
  const std::vector<RdmaRail>& rails = link_.rails();
  const std::size_t main = link_.main();
  const bool follows_plan = main < rails.size() && rails[main].planned > 0;
  for (std::size_t pair = 0; pair < max_queue_pairs; ++pair)
    for (std::size_t rail = 0; rail < rails.size(); ++rail)
      if (rails[rail].queues != nullptr && pair < rails[rail].queues->size() &&
          (!follows_plan || rails[rail].planned > 0))
        paths_.push_back({rail, pair, rails[rail].queues->device().port().gigabits_per_s()});
}

Status RdmaSender::turn() {
  GYRE_TRY(link_.take_completions());
  for (const std::size_t rail : std::exchange(told_lost_, {}))
    GYRE_TRY(link_.lose(rail, Status(Code::RemoteError, "the peer has lost it")));
  // Its receipt may cost a rail, too.
  if (told_grant_) GYRE_TRY(take_grant());
  note_losses();
  if (!is_ready_)
    return is_refused_() ? Status(Code::RemoteError, "the receiver has given the connection up")
                         : Status();
  if (link_.is_closed() && !flushed())
    return Status(Code::RemoteError, "the peer closed the connection");
  if (is_switching_) GYRE_TRY(ask());
  return is_switching_ ? Status() : ship();
}

Status RdmaSender::take(const ibv_wc& completion, WorkTag tag, std::size_t rail) {
  RdmaRail& from = link_.rails()[rail];
  if (tag.kind == WorkKind::receive) {
    GYRE_TRY(on_notice(completion));
    return from.queues->post_receives(tag.pair, 1);
  }
  if (tag.kind != WorkKind::message) return {};
  --from.unfinished;
  --unfinished_[tag.number & (ring_ - 1)];
  release_finished();
  return {};
}

Status RdmaSender::on_notice(const ibv_wc& completion) {
  const std::optional<Notice> notice =
      (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? Notice::of(completion.imm_data) : std::nullopt;
  if (!notice || notice->kind == NoticeKind::message || notice->kind == NoticeKind::taken)
    return Status(Code::RemoteError, "the receiver sent a notice that is not ours");
  if (notice->kind == NoticeKind::resume) return on_resume(*notice);
  if (notice->kind == NoticeKind::grant) {
    // A rail that is lost may bring an older one last.
    if (static_cast<std::int8_t>(notice->round - newest_grant_) <= 0) return {};
    newest_grant_ = notice->round;
    told_grant_ = notice;
    return {};
  }
  if (notice->kind == NoticeKind::lost) {
    if (notice->number >= link_.rails().size())
      return Status(Code::RemoteError, "the receiver has lost a rail that is not there");
    told_lost_.push_back(notice->number);
    return {};
  }
  // It may bring an older credit, too.
  const std::uint32_t behind =
      static_cast<std::uint32_t>(credited_ - notice->number) & Notice::mask;
  if (notice->kind == NoticeKind::credit && behind > 0 && behind <= window_.messages) return {};
  const std::uint64_t number = whole_number(notice->number, credited_);
  if (number - credited_ > posted_ - credited_)
    return Status(Code::RemoteError,
                  fmt::format("the receiver tells of message {}; {} were sent", number, posted_));
  credited_ = number;
  is_ready_ = true;
  if (notice->kind == NoticeKind::credit) return {};
  // It has all before that number, whether or not its NIC's last acknowledgements come. Its NIC may
  // have acknowledged more.
  link_.note_closing();
  const bool has_more = number - leaving_.head() <= posted_ - leaving_.head();
  while (has_more && leaving_.head() != number) leaving_.release();
  return {};
}

// The receiver writes the next one only after this one's receipt. After the loss of a rail it tries
// again, at another place: what a lost rail still brings spoils nothing.
Status RdmaSender::take_grant() {
  const Notice told = *std::exchange(told_grant_, std::nullopt);
  const auto grant = copied<RdmaGrant>(grant_place(told.round));
  const std::string fault = grant_fault(grant, told.number);
  if (!fault.empty()) return Status(Code::RemoteError, "a grant that is not ours: " + fault);
  if (!lends_the_same(grant, grant_)) lent_from_ = committed();
  grant_ = grant;
  Grant& shown = memory_->view.control->receiver_grant;
  shown.loan = {.region = grant.bytes > 0 ? region_same_process : region_staged,
                .offset = grant.address,
                .bytes = grant.bytes,
                .signature = grant.signature,
                .stores_all = grant.stores_all};
  shown.sequence.store(grant.sequence, std::memory_order_release);
  return link_.is_closed()
             ? Status()
             : link_.tell(WorkKind::grant, {NoticeKind::taken, told.number, told.round});
}

std::shared_ptr<const void> RdmaSender::hold(const void* memory, std::uint64_t bytes) noexcept {
  std::shared_ptr<const Registration> held = register_lent(memory, bytes);
  // The cache keeps registrations from call to call: this one may be there. A `lock` would make
  // others look held for a moment.
  std::erase_if(held_, [&](const std::weak_ptr<const Registration>& one) {
    return one.expired() || (!one.owner_before(held) && !held.owner_before(one));
  });
  try {
    if (held != nullptr) held_.push_back(held);
  } catch (const std::bad_alloc&) {
    held.reset();
  }
  return held;
}

// In order, as the executor's credit is a count.
void RdmaSender::release_finished() {
  while (leaving_.head() != posted_ && unfinished_[leaving_.head() & (ring_ - 1)] == 0)
    leaving_.release();
}

// A loss while answers are due makes all questions anew: an answer may have been lost with it.
void RdmaSender::note_losses() {
  while (const auto rail = link_.next_lost()) {
    lost_.push_back(*rail);
    is_switching_ = true;
    has_asked_ = false;
    ++round_;
    find_paths();
  }
}

// Once nothing is on its way, so that nothing lands at the receiver that it does not know of.
Status RdmaSender::ask() {
  const bool is_quiet =
      std::ranges::all_of(link_.rails(), [](const RdmaRail& rail) { return rail.unfinished == 0; });
  if (has_asked_ || !is_quiet || link_.is_closed()) return {};
  has_asked_ = true;
  answers_due_ = lost_.size();
  for (const std::size_t rail : lost_) {
    const RailQuestion question{rail, leaving_.head()};
    GYRE_TRY(link_.tell(WorkKind::notice, {NoticeKind::lost, question.to_number(), round_}));
  }
  return {};
}

Status RdmaSender::on_resume(const Notice& notice) {
  if (notice.round != round_ || answers_due_ == 0 || --answers_due_ > 0) return {};
  const std::uint64_t next = whole_number(notice.number, leaving_.head());
  if (next - leaving_.head() > posted_ - leaving_.head())
    return Status(Code::RemoteError,
                  fmt::format("the receiver waits for message {}; {} were sent", next, posted_));
  std::ranges::fill(unfinished_, 0);
  while (leaving_.head() != next) leaving_.release();
  posted_ = next;
  lost_.clear();
  is_switching_ = false;
  return {};
}

Status RdmaSender::ship() {
  while (posted_ != committed()) {
    // The slot there and the request queues here both have room for the window alone.
    if (posted_ - credited_ >= window_.messages || posted_ - leaving_.head() >= window_.messages)
      return {};
    GYRE_TRY(ship_message(posted_));
    note_losses();
    if (is_switching_) return {};  // this message may have left in part
    ++posted_;
  }
  return {};
}

std::uint64_t RdmaSender::committed() const {
  // This end's own memory, and its one thread.
  return memory_->view.control->tail.value.load(std::memory_order_relaxed);
}

}  // namespace gyre::transport
