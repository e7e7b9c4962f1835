#include "lib/control/job.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/control/cause.h"
#include "lib/control/tree.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::control {
namespace {

std::string reported_text(const Status& why, std::string_view who) {
  return fmt::format("{} (reported by {})", why.message(), who);
}

}  // namespace

Job::Job(const JobServices& services, std::shared_ptr<const trust::SessionKey> key,
         std::optional<Destination> root)
    : services_(services),
      key_(std::move(key)),
      is_root_(!root.has_value()),
      root_(std::move(root)),
      join_roster_(services.self) {
  if (!is_root_) dial(*root_, &Job::root_reached);
}

Job::~Job() {
  for (const auto& [rank, member] : members_) member->set_job(nullptr);
  for (const auto& member : doubles_) member->set_job(nullptr);
}

std::size_t Job::expected_guests() const {
  return phase_ != Phase::joined && !failed() ? static_cast<std::size_t>(size_) : 0;
}

// The first cause wins. It is with the kernel before this process can see it and end because of it,
// so that its own end is not taken for the cause.
void Job::fail_and_tell(const Status& cause, const Status& told, const ControlLink* told_by) {
  if (failed()) return;
  failure_ = cause;
  told_ = encode_cause(told);
  failed_ns_ = SystemClock::read();
  for (const auto& link : links_)
    if (link.get() != told_by) link->send(Kind::failure, told_);
  for (const auto& link : links_) link->set_liveness(0);
  // All others were told above. Who waits at the root does not know of this process yet.
  const bool is_unheard = phase_ == Phase::gathering && !place_ && !joins_.empty();
  if (!is_unheard) services_.thread.retire(std::move(dialer_));
  services_.thread.due_at(0);
  init_until_ns_ = never_ns;
  if (!is_root_ && phase_ != Phase::joined) key_.reset();
  for (const auto& [rank, member] : members_) member->become_failed(failure_);
  for (const auto& member : doubles_) member->become_failed(failure_);
}

void Job::fail(const Status& cause, const ControlLink* told_by) {
  fail_and_tell(cause, cause, told_by);
}

std::vector<int> Job::ranks_of(std::uint32_t process) const {
  if (group_ == nullptr && is_root_) return join_roster_.ranks_of(process);
  if (group_ == nullptr) return is_known(process) ? place_->parent_ranks : std::vector<int>();
  std::vector<int> ranks;
  const auto& process_of_rank = group_->roster.process_of_rank;
  for (std::size_t rank = 0; rank < process_of_rank.size(); ++rank)
    if (process_of_rank[rank] == process && !departures_.has_left(rank))
      ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::vector<int> Job::ranks_here() const {
  std::vector<int> ranks;
  for (const auto& [rank, member] : members_) ranks.push_back(rank);
  return ranks;
}

const trust::ProcessIdentity& Job::identity_of(std::uint32_t process) const {
  if (group_ != nullptr) return group_->roster.processes[process];
  return is_root_ ? join_roster_.process(process) : place_->parent;
}

// Before the roster has come, only the root knows more than one other process.
bool Job::is_known(std::uint32_t process) const {
  if (group_ != nullptr || is_root_) return true;
  return place_.has_value() && process == tree_parent(place_->process);
}

// Who made the id is rank 0's process in each split and nearly everywhere else.
Status Job::blame_process(std::uint32_t process, std::string_view what) const {
  std::vector<int> ranks = is_known(process) ? ranks_of(process) : std::vector<int>{0};
  const std::string who = is_known(process)
                              ? process_text(ranks, identity_of(process))
                              : "the process that made the unique id (usually rank 0's)";
  return Status(Code::RemoteError, fmt::format("{} {}", who, what)).blame(std::move(ranks));
}

void Job::fail_process(std::uint32_t process, std::string_view what) {
  fail_as_seen_here(blame_process(process, what));
}

// The others learn whose word it is, as what this process saw may be its own fault.
void Job::fail_as_seen_here(const Status& cause) {
  if (members_.empty() && !is_root_) return fail(cause);
  const std::string who = members_.empty() ? "the process that made the unique id"
                                           : rank_text({members_.begin()->first});
  const Status told = Status(cause.code(), reported_text(cause, who)).blame(cause.culprits());
  fail_and_tell(cause, told, nullptr);
}

void Job::abort(int rank, Status why) {
  if (failed() || ended_) return;
  // The one who aborts has Aborted already; to the others another rank failed.
  const Code code = why.code() == Code::Aborted ? Code::RemoteError : why.code();
  const bool self_only = why.culprits() == std::vector<int>{rank};
  const std::string text =
      self_only ? fmt::format("{} aborted: {}", process_text({rank}, services_.self), why.message())
                : reported_text(why, rank_text({rank}));
  fail(Status(code, text).blame(why.culprits()));
}

void Job::give_up(const Status& why) {
  // A root whose own ranks have not come yet, or have left.
  if (members_.empty()) return fail(Status(why).while_doing(process_text({}, services_.self)));
  const int rank = members_.begin()->first;
  abort(rank, Status(why).blame({rank}));
  give_up_here(why);
}

void Job::give_up_here(const Status& why) noexcept {
  for (const auto& [rank, member] : members_) member->become_failed(why);
  for (const auto& member : doubles_) member->become_failed(why);
}

void Job::close() {
  if (ended_) return;
  std::vector<int> ranks = ranks_here();
  if (!failed() && !ranks.empty()) {
    const std::string who = process_text(ranks, services_.self);
    fail(Status(Code::RemoteError, who + " ended without leaving the communicator")
             .blame(std::move(ranks)));
  }
  if (is_root_ && !failed() && ranks.empty()) end_as_root();
  ended_ = true;
}

// A root without ranks of its own goes in peace once the others have joined.
void Job::end_as_root() {
  if (phase_ == Phase::joined) {
    if (group_->here.empty()) leave_as_root();
  } else if (!links_.empty()) {
    fail_process(0, "ended before all ranks had joined");
  }
}

// ------------------------------------------------------------------------------------------ links

ControlLink& Job::add_link(std::unique_ptr<ControlLink> link, ControlLink::Role role) {
  link->belong_to(*this, role);
  if (liveness_ns_ > 0) link->set_liveness(liveness_ns_);
  links_.push_back(std::move(link));
  return *links_.back();
}

void Job::admit(std::unique_ptr<ControlLink> link) {
  add_link(std::move(link), ControlLink::Role::guest);
}

void Job::drop(ControlLink& link) {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const auto& known) { return known.get() == &link; });
  if (found == links_.end()) return;
  link.close();
  services_.thread.retire(std::move(*found));
  links_.erase(found);
}

bool Job::is_neighbour(const ControlLink& link) const {
  using Role = ControlLink::Role;
  return link.role == Role::parent || link.role == Role::child || link.role == Role::peer;
}

ControlLink* Job::neighbour(std::uint32_t process) const {
  for (const auto& link : links_)
    if (is_neighbour(*link) && link->process == process) return link.get();
  return nullptr;
}

void Job::send_neighbours(Kind kind, std::span<const std::uint8_t> body,
                          const ControlLink* except) {
  for (const auto& link : links_)
    if (is_neighbour(*link) && link.get() != except) link->send(kind, body);
}

void Job::protocol_error(const ControlLink& link, Kind kind) {
  const std::string what = fmt::format("broke the control protocol ({})", kind_name(kind));
  if (link.process != ControlLink::unknown) return fail_process(link.process, what);
  log_warn("a process that knows the secret {}", what);
}

void Job::on_frame(ControlLink& link, const trust::Frame& frame) {
  const auto kind = static_cast<Kind>(frame.type);
  if (kind == Kind::ping) return;
  if (kind == Kind::ack) return on_ack(link, frame);
  if (kind == Kind::farewell_heard) return on_farewell_heard(link);
  if (ended_) return;
  if (kind == Kind::join) return on_join(link, frame);
  // Who links up anew may not know yet.
  if (failed() && kind != Kind::hello && kind != Kind::welcome) return;
  switch (kind) {
    case Kind::failure: {
      // Of a process that came when all ranks were there: of none of them.
      if (link.process == ControlLink::unknown && phase_ != Phase::gathering) return;
      const std::optional<Status> cause = decode_cause(frame.body, size_);
      return cause ? fail(*cause, &link) : protocol_error(link, kind);
    }
    case Kind::place:
      return on_place(link, frame);
    case Kind::roster:
      return on_roster(link, frame);
    case Kind::hello:
      return on_hello(link, frame);
    case Kind::welcome:
      return on_welcome(link, frame);
    case Kind::ready:
      return on_ready(link);
    case Kind::go:
      return on_go(link);
    case Kind::rank_message:
      return on_rank_message(link, frame);
    case Kind::leave:
      return on_leave(link, frame);
    case Kind::departed:
      return on_departed(link, frame);
    case Kind::moved:
      return on_moved(link);
    default:
      return protocol_error(link, kind);
  }
}

// Whether the end of the process at the other side is a failure.
bool Job::is_needed(const ControlLink& link) const {
  if (failed() || ended_ || link.role == ControlLink::Role::leaving ||
      link.process == ControlLink::unknown)
    return false;
  return phase_ != Phase::joined || (link.welcome && !departures_.is_gone(link.process));
}

// Who has found another parent closes the link with this one, and so does who needs nobody.
void Job::on_end(ControlLink& link, const Status& how, bool closed) {
  const bool may_close = phase_ == Phase::joined &&
                         (link.role == ControlLink::Role::peer || departures_.is_gone(index_));
  if (is_needed(link) && !(closed && may_close) && !dials_root_again(link, how, closed))
    fail_process(link.process, fmt::format("died: {}", how.message()));
  if (!link.welcome) redial(link.process);
  if (closed && !failed()) met_.erase(link.process);
  drop(link);
}

// It is told as well: if it was only stopped, it learns that the others went on without it.
void Job::on_silence(ControlLink& link, std::int64_t limit_ns, const std::string& more) {
  if (link.process == ControlLink::unknown) return drop(link);
  if (is_needed(link))
    fail_process(link.process, fmt::format("does not answer: no sign of life for {} s{}",
                                           static_cast<double>(limit_ns) / ns_per_s, more));
}

std::int64_t Job::tick(std::int64_t now_ns, std::int64_t overslept_ns) {
  std::int64_t next = never_ns;
  if (dialer_ != nullptr) dialer_->forgive(overslept_ns);
  if (dialer_ != nullptr) next = dialer_->tick(now_ns);
  check_root();
  next = std::min(next, check_unheard_failure(now_ns));
  next = std::min(next, check_silence(now_ns));
  next = std::min(next, check_deadline(now_ns));
  next = std::min(next, check_farewell(now_ns));
  next = std::min(next, repair_tree(now_ns, overslept_ns));
  // A link that ends takes itself out of the list.
  std::vector<ControlLink*> links;
  for (const auto& link : links_) links.push_back(link.get());
  for (ControlLink* link : links) next = std::min(next, link->tick(now_ns));
  return next;
}

bool Job::flushed() const {
  if (failed() ? must_pass_failure_on() : says_farewell() || !post_.addressees().empty())
    return false;
  // Where nobody is, nobody hears it, and the process need not stay.
  if (seeks_root() && !dialer_->has_tried_all()) return false;
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link->flushed(); });
}

bool Job::finished() const {
  if (!members_.empty() || !flushed()) return false;
  if (failed())
    return (!is_root_ || phase_ == Phase::joined) && !answers_successors() && !seeks_root();
  if (phase_ != Phase::joined || !wanted_links_.empty() || tells_late_seekers()) return false;
  // Those whom no link leads to any more count too: nothing of them can be heard here.
  return departures_.all_left() ||
         std::ranges::none_of(links_, [this](const auto& link) { return is_neighbour(*link); });
}

}  // namespace gyre::control
