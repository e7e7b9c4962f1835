#include "lib/comm/tracing.h"

#include "lib/control/cause.h"
#include "lib/links/message_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::comm {

void Tracing::begin(control::Membership& membership, int own_rank, int peer, std::uint64_t sequence,
                    std::int64_t now_ns) {
  clear();
  way_ = {own_rank};
  sequence_ = sequence;
  trace_until_ns_ = now_ns + max_trace_ns;
  ask(membership, peer, now_ns);
}

void Tracing::begin_with_all(control::Membership& membership, int own_rank, std::int64_t now_ns) {
  clear();
  way_ = {own_rank};
  sequence_ = 0;
  trace_until_ns_ = now_ns + max_trace_ns;
  ask_all(membership, now_ns);
}

// But those of whom it is known that they wait.
void Tracing::ask_all(control::Membership& membership, std::int64_t now_ns) {
  taker_ = way_.back();
  ++questions_;
  answer_until_ns_ = std::min(now_ns + max_answer_ns, trace_until_ns_);
  const auto ranks = static_cast<int>(membership.roster().process_of_rank.size());
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::ranges::find(way_, rank) != way_.end()) continue;
    if (membership.has_left(rank)) {
      left_.push_back(rank);
      continue;
    }
    asked_.push_back(rank);
    send_question(membership, rank, questions_);
  }
}

void Tracing::ask(control::Membership& membership, int rank, std::int64_t now_ns) {
  way_.push_back(rank);
  send_question(membership, rank, ++questions_);
  answer_until_ns_ = std::min(now_ns + max_answer_ns, trace_until_ns_);
}

void Tracing::send_question(control::Membership& membership, int rank, std::uint64_t number) {
  control::MessageBytes question(sizeof number);
  std::memcpy(question.data(), &number, sizeof number);
  (void)membership.send(rank, message_key(MessageTopic::question), std::move(question));
}

std::optional<Whereabouts> Tracing::answer_of(control::Membership& membership, int rank) const {
  const auto rank_message = membership.receive(rank, message_key(MessageTopic::answer, questions_));
  const auto ranks = static_cast<int>(membership.roster().process_of_rank.size());
  return rank_message ? decode_whereabouts(*rank_message, ranks) : std::nullopt;
}

std::optional<Tracing::TraceVerdict> Tracing::advance(control::Membership& membership,
                                                      std::int64_t now_ns) {
  if (taker_ >= 0) return advance_with_all(membership, now_ns);
  const int rank = way_.back();
  if (membership.has_left(rank)) return end_at(rank, "has left the communicator");
  const auto seen = answer_of(membership, rank);
  if (!seen && now_ns < answer_until_ns_) return std::nullopt;
  if (!seen) return end_at(rank, "does not answer");
  const Whereabouts::ReportedWait wait = wait_to_follow(*seen);
  const bool takes_any = wait.what == BlockedOn::data && wait.peer < 0;
  if (seen->standing == Whereabouts::Standing::waits && takes_any) {
    ask_all(membership, now_ns);
    return std::nullopt;
  }
  const int next = wait.peer;
  if (seen->standing != Whereabouts::Standing::waits || next < 0)
    return end_at(rank, standing_text(*seen));
  if (std::ranges::find(way_, next) != way_.end()) return end_in_ring(next);
  ask(membership, next, now_ns);
  return std::nullopt;
}

// Who does not answer in time is not known to wait.
std::optional<Tracing::TraceVerdict> Tracing::advance_with_all(control::Membership& membership,
                                                               std::int64_t now_ns) {
  std::erase_if(asked_, [&](int rank) {
    if (membership.has_left(rank)) {
      left_.push_back(rank);
      return true;
    }
    const auto seen = answer_of(membership, rank);
    if (!seen) return false;
    way_.push_back(rank);
    if (seen->standing != Whereabouts::Standing::waits) not_waiting_.push_back(rank);
    return true;
  });
  if (!asked_.empty() && now_ns < answer_until_ns_) return std::nullopt;
  not_waiting_.insert(not_waiting_.end(), asked_.begin(), asked_.end());
  std::ranges::sort(not_waiting_);
  return end_with_all();
}

Tracing::TraceVerdict Tracing::end_with_all() const {
  const std::string taker = fmt::format("rank {} for a message of any rank", taker_);
  if (!not_waiting_.empty())
    return {fmt::format("{} {} for nobody; {}", control::rank_text(not_waiting_),
                        not_waiting_.size() == 1 ? "waits" : "wait", taker),
            not_waiting_};
  std::vector<int> ring = way_;
  std::ranges::sort(ring);
  if (!left_.empty())
    return {fmt::format("{} left the communicator; {} wait, {}", control::rank_text(left_),
                        control::rank_text(ring), taker),
            left_};
  return {fmt::format("{} {}; {}", control::rank_text(ring),
                      ring.size() == 1 ? "waits alone" : "all wait", taker),
          ring};
}

// In the same kind of call if there is one.
Whereabouts::ReportedWait Tracing::wait_to_follow(const Whereabouts& seen) const {
  const Whereabouts::ReportedWait& first = sequence_ != 0 ? seen.collective : seen.transfers;
  const Whereabouts::ReportedWait& second = sequence_ != 0 ? seen.transfers : seen.collective;
  return first.what != BlockedOn::nothing ? first : second;
}

std::string Tracing::standing_text(const Whereabouts& seen) const {
  using Standing = Whereabouts::Standing;
  const bool is_behind = sequence_ != 0 && seen.last_collective < sequence_;
  const std::string last = seen.last_collective == 0
                               ? std::string("it has made none")
                               : fmt::format("its last is number {}", seen.last_collective);
  const std::string not_begun =
      is_behind ? fmt::format("has not begun number {} ({}): it ", sequence_, last) : std::string();
  if (seen.standing == Standing::works)
    return not_begun + "is in a call and waits for nobody there";
  if (seen.standing == Standing::waits)
    return not_begun + (wait_to_follow(seen).what == BlockedOn::kernel
                            ? "waits for a kernel of its device"
                            : "waits for a message of any rank");
  if (!seen.elsewhere.empty())
    return fmt::format("{}waits in a call of communicator {}", not_begun, seen.elsewhere);
  return not_begun + "is in no call of this communicator";
}

Tracing::TraceVerdict Tracing::end_at(int rank, std::string how) const {
  std::vector<int> waiting(way_.begin(), way_.end() - 1);
  std::ranges::sort(waiting);
  return {fmt::format("rank {} {}; {} {} for it", rank, how, control::rank_text(waiting),
                      waiting.size() == 1 ? "waits" : "wait"),
          {rank}};
}

Tracing::TraceVerdict Tracing::end_in_ring(int rank) const {
  std::vector<int> ring(std::ranges::find(way_, rank), way_.end());
  std::ranges::sort(ring);
  return {fmt::format("{} wait for each other", control::rank_text(ring)), ring};
}

}  // namespace gyre::comm
