// How a job repairs the tree when processes are gone: their children look for another parent. A
// process whose messages one of them would have forwarded opens a link to the reader.
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/control/cause.h"
#include "lib/control/job.h"
#include "lib/control/tree.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::control {
namespace {

// As a rule all ranks leave within moments: nobody needs another parent for those. Failures must
// reach everybody in 100 ms, so it may not be long.
constexpr std::int64_t pause_ns = 20 * ns_per_ms;
// A parent that does not answer for so long may be gone itself: the next one is tried as well.
constexpr std::int64_t candidate_ns = 250 * ns_per_ms;
// The old links carry what was under way, as long as those who are gone go on living.
constexpr std::int64_t old_links_ns = ns_per_s;
constexpr std::int64_t late_seekers_ns = 2 * old_links_ns;

}  // namespace

// Messages that may have been lost with it are sent again, over links to those they are for.
void Job::on_gone(std::uint32_t process) {
  gone_ns_ = SystemClock::read();
  services_.thread.due_at(gone_ns_ + pause_ns);
  post_.forget(process);
  successors_.erase(process);
  if (const auto found = wanted_links_.find(process); found != wanted_links_.end()) {
    services_.thread.retire(std::move(found->second.dial));
    wanted_links_.erase(found);
  }
  for (const std::uint32_t reader : post_.addressees())
    if (way_to(reader) == nullptr) reach(reader);
  expect_successors(departures_.is_gone(0) ? 0 : process);
}

// Those that hang on this process from now on have to come.
void Job::expect_successors(std::uint32_t process) {
  if (departures_.is_gone(index_)) return successors_.clear();
  for (const std::uint32_t heir : departures_.successors(process))
    if (heir != index_ && departures_.parent(heir) == index_ && !met_.contains(heir))
      successors_.try_emplace(heir, gone_ns_);
}

// ------------------------------------------------------------------------------------------ links

void Job::reach(std::uint32_t process) {
  if (key_ == nullptr || wanted_links_.contains(process)) return;
  WantedLink& wanted = wanted_links_[process];
  wanted.since_ns = SystemClock::read();
  wanted.dial = dial(process);
  services_.thread.due_at(0);
}

std::unique_ptr<ControlDialer> Job::dial(std::uint32_t process) {
  return std::make_unique<ControlDialer>(
      services_.trunks, key_, Destination::of(identity_of(process), services_.self),
      [this, process](std::unique_ptr<ControlLink> link) { reached(process, std::move(link)); });
}

// The link ended before the other end had taken it: that may be on its way out.
void Job::redial(std::uint32_t process) {
  const auto wanted = wanted_links_.find(process);
  if (wanted == wanted_links_.end() || key_ == nullptr) return;
  services_.thread.retire(std::exchange(wanted->second.dial, dial(process)));
  services_.thread.due_at(0);
}

void Job::reached(std::uint32_t process, std::unique_ptr<ControlLink> reached) {
  ControlLink& link = add_link(std::move(reached), ControlLink::Role::peer);
  link.process = process;
  link.welcome = false;
  link.send(Kind::hello, encode(HelloMessage{index_, services_.self.process}));
  tell_state(link);
}

// What the other end may not have heard, as it was told to others while no way led here.
void Job::tell_state(ControlLink& link) {
  const std::vector<std::uint8_t> departed = departures_.encode();
  if (!departed.empty()) link.send(Kind::departed, departed);
  if (failed()) link.send(Kind::failure, told_);
}

void Job::meet_peer(ControlLink& link, const HelloMessage& hello) {
  const auto& processes = group_->roster.processes;
  const bool is_known = hello.process < processes.size() && hello.process != index_ &&
                        processes[hello.process].process == hello.token;
  if (!is_known) {
    log_warn("a process that knows the secret claims to be one of the communicator's");
    return drop(link);
  }
  link.role = ControlLink::Role::peer;
  link.process = hello.process;
  successors_.erase(hello.process);
  met_.insert(hello.process);
  link.send(Kind::welcome, encode(HelloMessage{index_, services_.self.process}));
  tell_state(link);
  send_unacknowledged(hello.process);
}

void Job::on_peer_welcome(ControlLink& link, const HelloMessage& welcome) {
  const bool due = !link.welcome && welcome.process == link.process &&
                   welcome.token == identity_of(link.process).process;
  if (!due) return protocol_error(link, Kind::welcome);
  link.welcome = true;
  met_.insert(link.process);
  if (const auto wanted = wanted_links_.find(link.process); wanted != wanted_links_.end()) {
    services_.thread.retire(std::move(wanted->second.dial));
    wanted_links_.erase(wanted);
  }
  send_unacknowledged(link.process);
}

void Job::on_departed(ControlLink& link, const trust::Frame& frame) {
  if (!is_neighbour(link) || phase_ != Phase::joined) return protocol_error(link, Kind::departed);
  const auto ranks = departures_.decode(frame.body);
  const auto is_told = [this](std::uint32_t rank) { return may_be_told(rank); };
  if (!ranks || !std::ranges::all_of(*ranks, is_told)) return protocol_error(link, Kind::departed);
  for (const std::uint32_t rank : *ranks) note_left(rank, &link);
  acknowledge_farewell(link);
}

// ---------------------------------------------------------------------------------------- the tree

// Says when to look again.
std::int64_t Job::repair_tree(std::int64_t now_ns, std::int64_t overslept_ns) {
  if (phase_ != Phase::joined || !departures_.any_gone()) return never_ns;
  for (auto& [process, wanted] : wanted_links_) wanted.since_ns += overslept_ns;
  for (auto& [process, since_ns] : successors_) since_ns += overslept_ns;
  std::int64_t next = seek_parent(now_ns);
  if (failed() && answers_successors()) next = std::min(next, failed_ns_ + liveness_ns_);
  if (members_.empty() && tells_late_seekers()) next = std::min(next, gone_ns_ + late_seekers_ns);
  next = std::min(next, check_wanted_links(now_ns));
  next = std::min(next, check_successors(now_ns));
  return std::min(next, close_links_to_departed(now_ns));
}

// Whether it is linked to where it belongs, if it still needs anybody.
bool Job::has_parent() const {
  const auto parent = departures_.parent(index_);
  return !parent || departures_.is_gone(index_) || met_.contains(*parent);
}

std::int64_t Job::seek_parent(std::int64_t now_ns) {
  if (has_parent() || (failed() ? !must_pass_failure_on() : ended_)) return never_ns;
  if (now_ns < gone_ns_ + pause_ns) return gone_ns_ + pause_ns;
  if (!wanted_links_.contains(*departures_.parent(index_))) reach(*departures_.parent(index_));
  // It may be gone as well, and who knows of it be behind it.
  const auto next = next_candidate();
  if (next) reach(*next);
  return now_ns + candidate_ns;
}

// Who comes after those that do not answer: the ancestors, then all of lower number. Nobody, while
// there is one that was not given its time.
std::optional<std::uint32_t> Job::next_candidate() const {
  const std::int64_t now_ns = SystemClock::read();
  const auto is_out = [&](std::uint32_t process) {
    const auto found = wanted_links_.find(process);
    return departures_.is_gone(process) || met_.contains(process) ||
           (found != wanted_links_.end() && (!found->second.dial->problem().empty() ||
                                             now_ns - found->second.since_ns >= candidate_ns));
  };
  const auto is_new = [&](std::uint32_t process) {
    return is_out(process) ? std::nullopt : std::optional(!wanted_links_.contains(process));
  };
  for (std::uint32_t above = index_; above != 0;) {
    above = tree_parent(above);
    if (const auto fresh = is_new(above)) return *fresh ? std::optional(above) : std::nullopt;
  }
  for (std::uint32_t below = 0; below < index_; ++below)
    if (const auto fresh = is_new(below)) return *fresh ? std::optional(below) : std::nullopt;
  return std::nullopt;
}

// Who is needed and does not answer for as long as a silence may last has failed. Who was tried in
// a parent's place is needed no more when that one has come.
std::int64_t Job::check_wanted_links(std::int64_t now_ns) {
  std::int64_t next = never_ns;
  const auto parent = departures_.parent(index_);
  for (auto wanted = wanted_links_.begin(); wanted != wanted_links_.end();) {
    const auto& [process, reach] = *wanted;
    const bool has_rank_messages = !failed() && !post_.unacknowledged(process).empty();
    const bool is_needed = has_rank_messages || (process == parent && !has_parent());
    const bool is_tried = (!has_parent() && process < index_) || says_farewell();
    if ((is_needed || is_tried) && now_ns - reach.since_ns < liveness_ns_) {
      next = std::min({next, reach.dial->tick(now_ns), reach.since_ns + liveness_ns_});
      ++wanted;
      continue;
    }
    const std::string problem = reach.dial->problem();
    const std::uint32_t missing = process;
    services_.thread.retire(std::move(wanted->second.dial));
    wanted = wanted_links_.erase(wanted);
    if (is_needed && !failed() && !ended_)
      fail_process(missing, fmt::format("cannot be reached any more: {}",
                                        problem.empty() ? "no answer" : problem));
  }
  return next;
}

std::int64_t Job::check_successors(std::int64_t now_ns) {
  std::int64_t next = never_ns;
  for (auto heir = successors_.begin(); heir != successors_.end();) {
    const auto [process, since_ns] = *heir;
    if (met_.contains(process) || departures_.parent(process) != index_) {
      heir = successors_.erase(heir);
      continue;
    }
    next = std::min(next, since_ns + liveness_ns_);
    ++heir;
    if (now_ns - since_ns < liveness_ns_ || failed() || ended_) continue;
    fail_process(process, fmt::format("gives no sign of life for {} s after others have left",
                                      static_cast<double>(liveness_ns_) / ns_per_s));
  }
  return failed() || ended_ ? never_ns : next;
}

std::int64_t Job::close_links_to_departed(std::int64_t now_ns) {
  const auto is_old = [this](const std::unique_ptr<ControlLink>& link) {
    return is_neighbour(*link) && departures_.is_gone(link->process);
  };
  if (!has_parent() || !successors_.empty() || std::ranges::none_of(links_, is_old))
    return never_ns;
  if (now_ns < gone_ns_ + old_links_ns) return gone_ns_ + old_links_ns;
  while (true) {
    const auto old = std::ranges::find_if(links_, is_old);
    if (old == links_.end()) return never_ns;
    drop(**old);
  }
}

// It has failed, and no way leads to those who have to be told, yet.
bool Job::must_pass_failure_on() const {
  return failed() && phase_ == Phase::joined && departures_.any_gone() && !has_parent() &&
         SystemClock::read() < failed_ns_ + liveness_ns_;
}

// Those who hung on somebody who is gone may not have linked up yet, and ask here why it failed.
bool Job::answers_successors() const {
  return phase_ == Phase::joined && departures_.any_gone() && !ended_ &&
         SystemClock::read() < failed_ns_ + liveness_ns_;
}

// Who needs nobody and has no links any more may still be asked for one, and tells who has left.
bool Job::tells_late_seekers() const {
  return departures_.any_gone() && !departures_.all_left() && !ended_ &&
         SystemClock::read() < gone_ns_ + late_seekers_ns;
}

}  // namespace gyre::control
