// How ranks leave a job. A process whose last rank has left may end at once, and so may those who
// would pass its word on. So its leave is over when a process has heard it that stays, or passes it
// on. Without that the others would wait for it, and take it for dead. Its last messages have to be
// taken as well: a reader may need one to find out that it needs no more of this process.
#include "lib/base/clock.h"
#include "lib/control/cause.h"
#include "lib/control/job.h"

#include <algorithm>

namespace gyre::control {
namespace {

// A neighbour that hears says so at once, unless it is on its way out.
constexpr std::int64_t neighbours_ns = 5 * ns_per_ms;
constexpr std::int64_t next_listener_ns = 20 * ns_per_ms;

}  // namespace

void Job::leave(const LocalMember& member, std::function<void()> on_heard) {
  const int rank = member.rank();
  const auto found = members_.find(rank);
  if (found == members_.end() || found->second.get() != &member) return on_heard();
  found->second->set_job(nullptr);
  members_.erase(found);
  if (failed()) {
    services_.thread.due_at(0);
    return on_heard();
  }
  if (phase_ != Phase::joined) {
    fail(Status(Code::RemoteError,
                process_text({rank}, services_.self) + " left before all ranks had joined")
             .blame({rank}));
    return on_heard();
  }
  wait_for_farewell_.push_back(std::move(on_heard));
  note_left(static_cast<std::uint32_t>(rank), nullptr);
  check_farewell(SystemClock::read());
}

void Job::leave_as_root() { note_left(no_rank, nullptr); }

void Job::on_leave(ControlLink& link, const trust::Frame& frame) {
  const std::optional<std::uint32_t> rank = decode_leave(frame.body);
  if (!rank || !is_neighbour(link) || phase_ != Phase::joined)
    return protocol_error(link, Kind::leave);
  const bool known = *rank < static_cast<std::uint32_t>(size_);
  if (!known && *rank != no_rank) return protocol_error(link, Kind::leave);
  if (!may_be_told(*rank)) return protocol_error(link, Kind::leave);
  note_left(*rank, &link);
  acknowledge_farewell(link);
}

// Only this process knows first that a rank of its own has left; others may say it back.
bool Job::may_be_told(std::uint32_t rank) const {
  const std::uint32_t source = rank == no_rank ? 0 : group_->roster.process_of_rank[rank];
  return source != index_ ||
         (rank == no_rank ? departures_.is_gone(0) : departures_.has_left(rank));
}

void Job::note_left(std::uint32_t rank, const ControlLink* told_by) {
  if (!departures_.note(rank)) return;
  const std::uint32_t process = rank == no_rank ? 0 : group_->roster.process_of_rank[rank];
  if (rank != no_rank)
    group_->left[rank].store(true, std::memory_order_release);  // pairs with has_left
  send_neighbours(Kind::leave, encode_leave(rank), told_by);
  if (departures_.is_gone(process)) on_gone(process);
  services_.thread.due_at(0);
}

// ---------------------------------------------------------------------------------- the farewell

// To a process that is gone, by one that knows it now, and stays or has told one that does.
void Job::acknowledge_farewell(ControlLink& link) {
  if (!departures_.is_gone(link.process)) return;
  const bool passes_it_on = std::ranges::any_of(links_, [&](const auto& other) {
    return is_neighbour(*other) && other->is_open() && other->process != link.process &&
           !departures_.is_gone(other->process);
  });
  if (!departures_.is_gone(index_) || passes_it_on || departures_.all_left())
    link.send(Kind::farewell_heard, {});
}

void Job::on_farewell_heard(const ControlLink& link) {
  if (phase_ != Phase::joined || !is_neighbour(link) || !departures_.is_gone(index_))
    return protocol_error(link, Kind::farewell_heard);
  farewell_heard_ = true;
  services_.thread.due_at(0);
}

// Whether this process has something to say that nobody has heard for sure.
bool Job::says_farewell() const {
  return phase_ == Phase::joined && !failed() && departures_.is_gone(index_) && !farewell_heard_;
}

// Goes on until somebody has heard it. Says when to look again.
std::int64_t Job::check_farewell(std::int64_t now_ns) {
  std::int64_t next = never_ns;
  if (says_farewell()) next = seek_listener(now_ns);
  const bool is_last = phase_ == Phase::joined && !failed() && departures_.is_gone(index_);
  if (!says_farewell() && !(is_last && !post_.addressees().empty()))
    for (const auto& on_heard : std::exchange(wait_for_farewell_, {})) on_heard();
  return next;
}

// The neighbours have been told. Those who do not answer may have ended: then others are told, one
// more each time, until one hears it or there is nobody else.
std::int64_t Job::seek_listener(std::int64_t now_ns) {
  if (farewell_ns_ == 0) farewell_ns_ = listener_ns_ = now_ns;
  const auto is_tried = [this](std::uint32_t process) { return wanted_links_.contains(process); };
  for (const auto& [process, wanted] : wanted_links_)
    if (!wanted.dial->problem().empty()) unreachable_.insert(process);
  const auto may_hear = [this](std::uint32_t process) {
    return process != index_ && !departures_.is_gone(process) && !unreachable_.contains(process);
  };
  const auto processes = static_cast<std::uint32_t>(group_->roster.processes.size());
  std::optional<std::uint32_t> fresh;
  bool anybody = false;
  for (std::uint32_t process = 0; process < processes && !fresh; ++process) {
    if (!may_hear(process)) continue;
    anybody = true;
    if (!is_tried(process) && neighbour(process) == nullptr) fresh = process;
  }
  if (!anybody || now_ns - farewell_ns_ >= liveness_ns_) {
    farewell_heard_ = true;  // by nobody, as nobody is there
    return never_ns;
  }
  const bool is_first = listener_ns_ == farewell_ns_;
  const std::int64_t due_ns = listener_ns_ + (is_first ? neighbours_ns : next_listener_ns);
  if (now_ns < due_ns) return due_ns;
  listener_ns_ = now_ns;
  if (fresh) reach(*fresh);
  return now_ns + next_listener_ns;
}

}  // namespace gyre::control
