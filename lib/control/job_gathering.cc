// How the ranks of a job come together: every process tells the root, the root tells every process.
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/control/cause.h"
#include "lib/control/job.h"
#include "lib/control/tree.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::control {
namespace {

// Some know who is missing; the others give them this long to say so.
constexpr std::int64_t grace_ns = 3 * ns_per_s / 4;

}  // namespace

void Job::enlist(std::shared_ptr<LocalMember> member, int size, MessageBytes note,
                 const Settings& settings) {
  if (failed()) return member->become_failed(failure_);
  if (ended_ || phase_ != Phase::gathering) {
    member->become_failed(
        invalid_usage(fmt::format("rank {} comes too late: all {} ranks of this unique id have "
                                  "joined already",
                                  member->rank(), size_)));
    return;
  }
  member->set_job(this);
  const int rank = member->rank();
  const bool is_double = !members_.try_emplace(rank, member).second;
  if (is_double) doubles_.push_back(member);
  if (size_ == 0) size_ = size;
  const std::int64_t init_ns = settings.init_timeout_s * ns_per_s;
  set_limits(SystemClock::read() + init_ns, settings.liveness_timeout_s * ns_per_s);
  if (is_root_) return enter(0, size, rank, std::move(note));

  JoinMessage join;
  join.size = static_cast<std::uint32_t>(size);
  join.rank = static_cast<std::uint32_t>(rank);
  join.init_timeout_ms = static_cast<std::uint32_t>(
      std::min<std::int64_t>(settings.init_timeout_s * 1000, UINT32_MAX));
  join.liveness_ms = static_cast<std::uint32_t>(
      std::min<std::int64_t>(settings.liveness_timeout_s * 1000, UINT32_MAX));
  join.process = services_.self;
  join.note = std::move(note);
  joins_.push_back(encode(join));
  for (const auto& link : links_)
    if (link->role == ControlLink::Role::root) link->send(Kind::join, joins_.back());
}

// The shortest wish of any rank holds.
void Job::set_limits(std::int64_t init_until_ns, std::int64_t liveness_ns) {
  const std::int64_t now = SystemClock::read();
  if (init_until_ns < init_until_ns_) {
    init_until_ns_ = init_until_ns;
    init_limit_ns_ = init_until_ns - now;
    services_.thread.due_at(init_until_ns_);
  }
  if (liveness_ns_ != 0 && liveness_ns >= liveness_ns_) return;
  liveness_ns_ = liveness_ns;
  for (const auto& link : links_) link->set_liveness(liveness_ns_);
}

void Job::dial(const Destination& destination,
               void (Job::*take)(std::unique_ptr<ControlLink> link)) {
  dialer_ = std::make_unique<ControlDialer>(
      services_.trunks, key_, destination,
      [this, take](std::unique_ptr<ControlLink> link) { (this->*take)(std::move(link)); });
  services_.thread.due_at(0);
}

// What breaks while ranks gather may be the connection alone. A dead process does not answer.
bool Job::dials_root_again(const ControlLink& link, const Status& how, bool closed) {
  if (phase_ != Phase::gathering || place_ || link.role != ControlLink::Role::root || closed ||
      !root_broke_.ok())
    return false;
  root_broke_ = how;
  root_->is_up = true;
  dial(*root_, &Job::root_reached);
  return true;
}

void Job::check_root() {
  if (failed() || root_broke_.ok() || place_ || dialer_ == nullptr) return;
  if (!dialer_->has_tried_all()) return;
  fail_process(0, fmt::format("died: {}", root_broke_.message()));
  services_.thread.retire(std::move(dialer_));
}

// The root may not be there yet. The others wait for this process as long as it waited for them, so
// it tries as long. Says when to look again.
std::int64_t Job::check_unheard_failure(std::int64_t now_ns) {
  if (!seeks_root()) return never_ns;
  const std::int64_t until_ns = failed_ns_ + init_limit_ns_;
  if (now_ns < until_ns) return until_ns;
  services_.thread.retire(std::move(dialer_));
  return never_ns;
}

void Job::root_reached(std::unique_ptr<ControlLink> reached) {
  services_.thread.retire(std::move(dialer_));
  ControlLink& link = add_link(std::move(reached), ControlLink::Role::root);
  link.process = 0;
  for (const auto& join : joins_) link.send(Kind::join, join);
  if (!failed()) return;
  link.send(Kind::failure, told_);
  link.set_liveness(0);
}

// -------------------------------------------------------------------------------------- the root's

void Job::on_join(ControlLink& link, const trust::Frame& frame) {
  if (!is_root_) return protocol_error(link, Kind::join);
  if (failed()) return tell_late_rank(link, frame);
  if (phase_ != Phase::gathering) {
    const Status late =
        invalid_usage(fmt::format("all {} ranks of this unique id have joined already", size_));
    return link.send(Kind::failure, encode_cause(late));
  }
  Result<JoinMessage> message = decode_join(frame.body);
  if (!message.ok()) return fail(std::move(message).status().while_doing("a process that joins"));
  const Status noted = note_join(link, std::move(*message));
  if (!noted.ok()) fail(noted);
}

void Job::tell_late_rank(ControlLink& link, const trust::Frame& frame) {
  const Result<JoinMessage> message = decode_join(frame.body);
  if (message.ok()) told_late_.insert(static_cast<int>(message->rank));
  link.send(Kind::failure, told_);
}

bool Job::has_unreported_failure() const {
  if (!is_root_ || !failed() || phase_ == Phase::joined || deadline_passed_) return false;
  const std::vector<int> missing = join_roster_.missing();
  return std::any_of(missing.begin(), missing.end(),
                     [&](int rank) { return !told_late_.contains(rank); });
}

Status Job::note_join(ControlLink& link, JoinMessage message) {
  if (link.process == ControlLink::unknown) {
    GYRE_ASSIGN(link.process, join_roster_.add_process(message.process));
  } else if (join_roster_.process(link.process).process != message.process.process) {
    return blame_process(link.process, "gave two identities");
  }
  set_limits(SystemClock::read() + message.init_timeout_ms * ns_per_ms,
             message.liveness_ms * ns_per_ms);
  if (size_ == 0) size_ = static_cast<int>(message.size);
  enter(link.process, static_cast<int>(message.size), static_cast<int>(message.rank),
        std::move(message.note));
  return {};
}

void Job::enter(std::uint32_t slot, int size, int rank, MessageBytes note) {
  const Status entered = join_roster_.enter(slot, size, rank, std::move(note));
  if (!entered.ok()) return fail(entered);
  if (join_roster_.complete()) complete_roster();
}

void Job::complete_roster() {
  std::vector<std::uint32_t> place_of_slot;
  RosterMessage message;
  message.liveness_ms = static_cast<std::uint32_t>(liveness_ns_ / ns_per_ms);
  message.roster = join_roster_.finish(&place_of_slot);
  roster_parts_ = encode_parts(message);
  for (const auto& link : links_)  // without those that proved the key and have said nothing yet
    if (link->process != ControlLink::unknown) link->process = place_of_slot[link->process];
  tell_places(message);
  const Status taken = take_roster(std::move(message));
  if (!taken.ok()) fail(taken);
}

void Job::tell_places(const RosterMessage& message) {
  const Roster& roster = message.roster;
  std::vector<std::vector<int>> ranks(roster.processes.size());
  for (std::size_t rank = 0; rank < roster.process_of_rank.size(); ++rank)
    ranks[roster.process_of_rank[rank]].push_back(static_cast<int>(rank));
  for (const auto& link : links_) {
    if (link->process == ControlLink::unknown) continue;
    const std::uint32_t parent = tree_parent(link->process);
    if (parent == 0)
      for (const auto& part : roster_parts_) link->send(Kind::roster, part);
    else
      link->send(Kind::place,
                 encode(PlaceMessage{link->process, roster.processes[parent], ranks[parent]}));
  }
}

// ------------------------------------------------------------------------------------ the others'

bool Job::brings_roster(const ControlLink& link) const {
  if (phase_ != Phase::gathering) return false;
  return place_ ? link.role == ControlLink::Role::parent && parent_stands_
                : link.role == ControlLink::Role::root;
}

void Job::on_roster(ControlLink& link, const trust::Frame& frame) {
  if (!brings_roster(link)) return protocol_error(link, Kind::roster);
  const Result<bool> whole = intake_.take(frame.body);
  if (!whole.ok()) return protocol_error(link, Kind::roster);
  roster_parts_.push_back(frame.body);
  if (!*whole) return;
  Result<RosterMessage> message = intake_.decode(static_cast<std::uint32_t>(size_));
  if (!message.ok()) return protocol_error(link, Kind::roster);
  intake_ = {};
  const Status taken = take_roster(std::move(*message));
  if (!taken.ok()) fail(taken);
}

Status Job::take_roster(RosterMessage message) {
  auto group = std::make_shared<JoinedGroup>();
  group->roster = std::move(message.roster);
  const Roster& roster = group->roster;
  const auto self =
      std::find_if(roster.processes.begin(), roster.processes.end(),
                   [&](const auto& process) { return process.process == services_.self.process; });
  if (self == roster.processes.end())
    return Status(Code::RemoteError, "the root's roster lacks this process");
  index_ = static_cast<std::uint32_t>(self - roster.processes.begin());
  std::size_t here = 0;
  for (const std::uint32_t process : roster.process_of_rank) here += process == index_;
  for (const auto& [rank, member] : members_) {
    if (rank >= size_ || roster.process_of_rank[static_cast<std::size_t>(rank)] != index_)
      return Status(Code::RemoteError, fmt::format("the root's roster misplaces rank {}", rank));
    group->here[rank] = member;
  }
  if (here != members_.size() || (index_ == 0) != is_root_)
    return Status(Code::RemoteError,
                  "the root's roster gives this process ranks that it does not have");
  if (!is_at_its_place(roster))
    return Status(Code::RemoteError, "the roster and the root give this process different places");
  group->left = std::vector<std::atomic<bool>>(static_cast<std::size_t>(size_));
  group_ = std::move(group);
  departures_ = Departures(group_->roster);
  liveness_ns_ = message.liveness_ms * ns_per_ms;
  for (const auto& link : links_) link->set_liveness(liveness_ns_);
  services_.thread.due_at(0);  // whose ranks are all known may need less of the listener
  begin_linking();
  return {};
}

// --------------------------------------------------------------------------------------- deadlines

// Of who is dialed, while ranks come together. Half a second more than a silence may last, as the
// kernel repeats its first packet after a second. Says when to look again.
std::int64_t Job::check_silence(std::int64_t now_ns) {
  const std::int64_t silent_ns = dialer_ != nullptr ? dialer_->silent_ns(now_ns) : 0;
  if (silent_ns == 0 || failed()) return never_ns;
  const std::int64_t max_ns = liveness_ns_ + ns_per_s / 2;
  if (silent_ns < max_ns) return now_ns + max_ns - silent_ns;
  const std::string what = fmt::format(
      "cannot be reached: no answer from {} for {:.1f} s: the network to it is cut, its host is "
      "down, or it stands still",
      dialer_->target(), static_cast<double>(silent_ns) / ns_per_s);
  fail_process(place_ ? tree_parent(index_) : 0, what);
  return never_ns;
}

// Says when to look again.
std::int64_t Job::check_deadline(std::int64_t now_ns) {
  if (failed() || phase_ == Phase::joined || init_until_ns_ == never_ns) return never_ns;
  const std::int64_t until = knows_who_is_late() ? init_until_ns_ : init_until_ns_ + grace_ns;
  if (now_ns < until) return until;
  deadline_passed_ = true;
  const Status late = lateness();
  is_root_ ? fail(late) : fail_as_seen_here(late);
  return never_ns;
}

// Gathering, the root knows who is missing; linking, whoever lacks a neighbour.
bool Job::knows_who_is_late() const {
  if (dialer_ != nullptr) return true;
  return phase_ == Phase::gathering ? is_root_ : !unlinked().empty();
}

// All is well here: whoever should have said more has not.
Status Job::blame_silent_above(const std::string& limit) const {
  const bool linking = group_ != nullptr;
  const std::uint32_t above = !is_root_ && (linking || place_) ? tree_parent(index_) : 0;
  const Status silent = blame_process(
      above, linking ? "did not say that all have linked up" : "did not say who the ranks are");
  return Status(Code::Timeout, fmt::format("{} {}", silent.message(), limit))
      .blame(silent.culprits());
}

Status Job::lateness() const {
  const std::string limit =
      fmt::format("within {:.1f} s", static_cast<double>(init_limit_ns_) / ns_per_s);
  if (phase_ == Phase::gathering && is_root_) {
    std::vector<int> missing = join_roster_.missing();
    const std::string text =
        fmt::format("{} did not join {}; {} of {} ranks came", rank_text(missing), limit,
                    static_cast<std::size_t>(size_) - missing.size(), size_);
    return Status(Code::Timeout, text).blame(std::move(missing));
  }
  if (dialer_ != nullptr && dialer_->failed_here())
    return Status(Code::SystemError, fmt::format("{} could not dial {} {}: {}",
                                                 process_text(ranks_here(), services_.self),
                                                 dialer_->target(), limit, dialer_->problem()))
        .blame(ranks_here());
  if (phase_ == Phase::gathering && dialer_ != nullptr && !place_) {
    const Status unreached =
        blame_process(0, fmt::format("could not be reached at {} {}: {}", dialer_->target(), limit,
                                     dialer_->problem()));
    return Status(Code::Timeout, std::string(unreached.message())).blame(unreached.culprits());
  }
  std::vector<int> late;
  if (phase_ == Phase::gathering && dialer_ != nullptr) late = ranks_of(tree_parent(index_));
  for (const std::uint32_t process : phase_ == Phase::linking ? late_neighbours() : Processes()) {
    const std::vector<int> ranks = ranks_of(process);
    late.insert(late.end(), ranks.begin(), ranks.end());
  }
  if (late.empty()) return blame_silent_above(limit);
  const std::string why = dialer_ != nullptr ? ": " + dialer_->problem() : std::string();
  const std::string text = fmt::format("{} did not link up {}{}", rank_text(late), limit, why);
  return Status(Code::Timeout, text).blame(std::move(late));
}

}  // namespace gyre::control
