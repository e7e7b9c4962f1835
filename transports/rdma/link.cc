#include "transports/rdma/link.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/units.h"
#include "transports/rdma/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

namespace gyre::transport {
namespace {

constexpr std::int64_t questions_within_limit = 8;
// NICs take microseconds. One that is gone never does it.
constexpr std::int64_t max_flush_ns = 10 * ns_per_ms;

std::string_view kind_text(WorkKind kind) {
  switch (kind) {
    case WorkKind::receive:
      return "receive request";
    case WorkKind::message:
      return "write of message";
    case WorkKind::notice:
      return "notice of a lost rail";
    case WorkKind::credit:
      return "notice of free slots";
    case WorkKind::close:
      return "closing notice";
    case WorkKind::probe:
      return "empty write";
    case WorkKind::grant:
      return "grant of memory";
    case WorkKind::flush:
      return "flush of writes to a GPU's memory";
  }
  return "request";
}

}  // namespace

std::size_t RdmaLink::main() const {
  const auto first =
      std::ranges::find_if(rails_, [](const RdmaRail& rail) { return rail.queues != nullptr; });
  return static_cast<std::size_t>(first - rails_.begin());
}

std::size_t RdmaLink::count_used() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(rails_, [](const RdmaRail& rail) { return rail.queues != nullptr; }));
}

Status RdmaLink::join(const std::vector<std::optional<RdmaAddress>>& there) {
  Status why(Code::RemoteError, "the peer uses none of the ports");
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    RdmaRail& rail = rails_[i];
    if (rail.queues == nullptr) continue;
    if (i >= there.size() || !there[i]) {
      rail.queues.reset();
      continue;
    }
    rail.there = *there[i];
    last_ends_ = ends_text(i);
    if (Status joined = rail.queues->join(rail.there); !joined.ok()) {
      log_info(Subsystem::net, "{} {}: without {}: {}", toward_, peer_, last_ends_,
               joined.message());
      rail.queues.reset();
      lost_.push_back(i);
      why = std::move(joined);
      continue;
    }
    log_info(Subsystem::net, "{} {}: {}, queue pairs: {}{}", toward_, peer_, last_ends_,
             rail.queues->size(), use_text(rail));
  }
  if (count_used() == 0) return why;
  is_joined_ = true;
  return {};
}

Status RdmaLink::drain(std::size_t rail, Status& failed) {
  for (;;) {
    GYRE_ASSIGN(const std::span<const ibv_wc> found, rails_[rail].queues->poll());
    for (const ibv_wc& completion : found) {
      if (completion.status != IBV_WC_SUCCESS) {
        if (failed.ok()) failed = failure(rail, completion);
        continue;
      }
      const WorkTag tag = WorkTag::of(completion.wr_id);
      note_answer(rail, tag);
      GYRE_TRY(taker_.take(completion, tag, rail));
    }
    if (found.empty()) return {};
  }
}

void RdmaLink::note_answer(std::size_t rail, WorkTag tag) {
  rails_[rail].is_heard = true;
  if (tag.kind == WorkKind::probe) rails_[rail].is_probing = false;
}

Status RdmaLink::take_completions() {
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    if (rails_[rail].queues == nullptr) continue;
    Status failed;
    GYRE_TRY(drain(rail, failed));
    if (!failed.ok() && !is_closed_) GYRE_TRY(lose(rail, std::move(failed)));
  }
  return {};
}

Status RdmaLink::lose(std::size_t rail, Status why) {
  if (rails_[rail].queues == nullptr) return {};
  if (Status own = rails_[rail].queues->overflow(); !own.ok()) why = std::move(own);
  GYRE_TRY(stop(rail));
  return give_up(rail, std::move(why));
}

// A NIC hands back the receive requests that it has not used behind all that has arrived.
Status RdmaLink::stop(std::size_t rail) {
  RdmaQueues& queues = *rails_[rail].queues;
  const std::int64_t until_ns = SystemClock::read() + max_flush_ns;
  const bool stopped = queues.stop();
  Status flushed;
  do {
    GYRE_TRY(drain(rail, flushed));
  } while (stopped && queues.has_receives() && SystemClock::read() < until_ns);
  return queues.has_flush() ? flush_last(rail) : Status();
}

// What this NIC has written no other one can order. It may hang as its port does.
Status RdmaLink::flush_last(std::size_t rail) {
  RdmaQueues& queues = *rails_[rail].queues;
  const std::int64_t until_ns = SystemClock::read() + max_flush_ns;
  const Status posted =
      queues.has_flush_failed() ? Status() : queues.post_flush(rails_[rail].flushed, last_flush);
  Status others;  // of requests that are given up
  while (posted.ok() && queues.is_flushing() && SystemClock::read() < until_ns)
    GYRE_TRY(drain(rail, others));
  if (posted.ok() && !queues.is_flushing() && !queues.has_flush_failed()) return {};
  return Status(
      Code::SystemError,
      fmt::format("port {} is lost, and whether all that it wrote to the GPU's memory is "
                  "there cannot be found out{}{}",
                  queues.device().port().name(), posted.ok() ? "" : ": ", posted.message()));
}

Status RdmaLink::tell(WorkKind kind, const Notice& notice) {
  for (;;) {
    const std::size_t rail = main();
    Status posted = rails_[rail].queues->post_notice(kind, notice);
    if (posted.ok()) return posted;
    GYRE_TRY(lose(rail, std::move(posted)));
  }
}

Status RdmaLink::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  for (std::size_t rail = 0; rail < rails_.size() && is_joined_ && !is_closed_; ++rail) {
    if (rails_[rail].queues == nullptr) continue;
    Status silent = look_at(rail, now_ns, limit_ns);
    if (!silent.ok()) GYRE_TRY(lose(rail, std::move(silent)));
  }
  return {};
}

// What a rail is for, where some are planned.
std::string_view RdmaLink::use_text(const RdmaRail& rail) const {
  if (rail.planned > 0) return ", planned for its rings";
  const bool has_plan =
      std::ranges::any_of(rails_, [](const RdmaRail& one) { return one.planned > 0; });
  return has_plan ? ", in reserve" : "";
}

std::string RdmaLink::ends_text(std::size_t rail) const {
  const RdmaAddress& there = rails_[rail].there;
  return fmt::format("port {} to {} ({})", rails_[rail].queues->device().port().name(),
                     gid_text(there.gid), there.place);
}

// What is wrong with the port explains more than the status does.
Status RdmaLink::failure(std::size_t rail, const ibv_wc& completion) const {
  const WorkTag tag = WorkTag::of(completion.wr_id);
  RdmaQueues& queues = *rails_[rail].queues;
  const std::size_t pair = std::min<std::size_t>(tag.pair, queues.size() - 1);
  const std::string trouble = queues.device().trouble();
  const std::string_view explanation =
      trouble.empty() ? completion_remedy(completion.status) : std::string_view(trouble);
  return Status(is_own_failure(completion.status) ? Code::SystemError : Code::RemoteError,
                fmt::format("{} {} failed on queue pair {:#x}: {}, vendor error {:#x}; {}",
                            kind_text(tag.kind), tag.number, queues.number_of(pair),
                            completion_text(queues.device().verbs(), completion.status),
                            completion.vendor_err, explanation));
}

Status RdmaLink::give_up(std::size_t rail, Status why) {
  last_ends_ = ends_text(rail);
  rails_[rail].queues.reset();
  rails_[rail].unfinished = 0;
  lost_.push_back(rail);
  const std::size_t next = main();
  if (next == rails_.size()) return why;
  log_warn("{} {}: {} is lost, and the connection goes on over {}: {}", toward_, peer_, last_ends_,
           ends_text(next), why.message());
  return {};
}

std::optional<std::size_t> RdmaLink::next_lost() {
  if (lost_.empty()) return std::nullopt;
  const std::size_t rail = lost_.back();
  lost_.pop_back();
  return rail;
}

Status RdmaLink::look_at(std::size_t index, std::int64_t now_ns, std::int64_t limit_ns) {
  RdmaRail& rail = rails_[index];
  GYRE_TRY(rail.queues->overflow());
  // Where another rail can take over there is no need to wait as long as a host may be silent.
  const bool has_other = count_used() > 1;
  const std::int64_t patience_ns = has_other ? limit_ns / 2 : limit_ns;
  if (rail.is_probing && rail.is_heard) rail.asked_ns = now_ns;
  rail.is_heard = false;
  const bool is_silent = rail.is_probing && now_ns - rail.asked_ns > patience_ns;
  if (is_silent || has_other) {
    std::string trouble = rail.queues->device().trouble();
    if (!is_silent && !trouble.empty()) return Status(Code::RemoteError, std::move(trouble));
    if (trouble.empty()) trouble = "its host is down, or the network to it is cut";
    if (is_silent)
      return Status(Code::RemoteError,
                    fmt::format("the peer's NIC has not answered for {:.1f} s: {}",
                                static_cast<double>(now_ns - rail.asked_ns) / ns_per_s, trouble));
  }
  if (rail.is_probing || now_ns - rail.asked_ns < limit_ns / questions_within_limit) return {};
  rail.asked_ns = now_ns;
  ibv_send_wr question{};
  question.wr_id = WorkTag{WorkKind::probe}.to_id();
  question.opcode = IBV_WR_RDMA_WRITE;
  question.send_flags = IBV_SEND_SIGNALED;
  question.wr.rdma.remote_addr = rail.there.probed.address;
  question.wr.rdma.rkey = rail.there.probed.key;
  GYRE_TRY(rail.queues->post(0, question));
  rail.is_probing = true;
  return {};
}

Status RdmaLink::arm(WaitSet& set) {
  for (const RdmaRail& rail : rails_)
    if (rail.queues != nullptr) GYRE_TRY(rail.queues->arm(set));
  return {};
}

void RdmaLink::drop() noexcept {
  for (RdmaRail& rail : rails_) rail.queues.reset();
}

Status RdmaLink::broken(Status why) {
  if (is_joined_ && count_used() > 0) last_ends_ = ends_text(main());
  // Messages whose completions were lost look like the peer's nonsense.
  for (const RdmaRail& rail : rails_) {
    if (rail.queues == nullptr) continue;
    if (Status own = rail.queues->overflow(); !own.ok()) why = std::move(own);
  }
  drop();
  return link_failure(std::move(why), fmt::format("{} {} ({})", toward_, peer_, last_ends_), peer_);
}

void RdmaLink::close(std::uint64_t next, Mapping&& notes) noexcept {
  if (!is_joined_ || is_closed_ || count_used() == 0) return;
  RdmaRail& rail = rails_[main()];
  const Notice last{NoticeKind::close, static_cast<std::uint32_t>(next)};
  try {
    if (rail.queues->post_notice(WorkKind::close, last).ok())
      farewell_->see_off(std::move(rail.queues), std::move(rail.notes), std::move(notes));
  } catch (const std::bad_alloc&) {
    // As where posting fails: the control plane tells the peer.
  }
}

}  // namespace gyre::transport
