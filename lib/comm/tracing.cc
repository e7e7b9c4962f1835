#include "lib/comm/tracing.h"

#include "lib/bootstrap/cause.h"
#include "lib/comm/letter_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gyre::comm {

void Tracing::begin(bootstrap::Membership& membership, int own_rank, int peer,
                    std::uint64_t sequence, std::int64_t now_ns) {
  way_ = {own_rank};
  sequence_ = sequence;
  trace_until_ns_ = now_ns + trace_most_ns;
  ask(membership, peer, now_ns);
}

void Tracing::ask(bootstrap::Membership& membership, int rank, std::int64_t now_ns) {
  way_.push_back(rank);
  const std::uint64_t number = ++questions_;
  bootstrap::Letter question(sizeof number);
  std::memcpy(question.data(), &number, sizeof number);
  (void)membership.send(rank, letter_key(LetterKind::question), std::move(question));
  answer_until_ns_ = std::min(now_ns + answer_most_ns, trace_until_ns_);
}

std::optional<Tracing::Verdict> Tracing::advance(bootstrap::Membership& membership,
                                                 std::int64_t now_ns) {
  const int rank = way_.back();
  if (membership.has_left(rank)) return end_at(rank, "has left the communicator");
  const auto letter = membership.receive(rank, letter_key(LetterKind::answer, questions_));
  const auto ranks = static_cast<int>(membership.roster().process_of_rank.size());
  const auto seen = letter ? decode_whereabouts(*letter, ranks) : std::nullopt;
  if (!seen && now_ns < answer_until_ns_) return std::nullopt;
  if (!seen) return end_at(rank, "does not answer");
  const int next = wait_to_follow(*seen).peer;
  if (seen->standing != Whereabouts::Standing::waits || next < 0)
    return end_at(rank, standing_text(*seen));
  if (std::ranges::find(way_, next) != way_.end()) return end_in_ring(next);
  ask(membership, next, now_ns);
  return std::nullopt;
}

// In the same kind of call if there is one.
Whereabouts::Wait Tracing::wait_to_follow(const Whereabouts& seen) const {
  const Whereabouts::Wait& first = sequence_ != 0 ? seen.collective : seen.transfers;
  const Whereabouts::Wait& second = sequence_ != 0 ? seen.transfers : seen.collective;
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

Tracing::Verdict Tracing::end_at(int rank, std::string how) const {
  std::vector<int> waiting(way_.begin(), way_.end() - 1);
  std::ranges::sort(waiting);
  return {fmt::format("rank {} {}; {} {} for it", rank, how, bootstrap::rank_text(waiting),
                      waiting.size() == 1 ? "waits" : "wait"),
          {rank}};
}

Tracing::Verdict Tracing::end_in_ring(int rank) const {
  std::vector<int> ring(std::ranges::find(way_, rank), way_.end());
  std::ranges::sort(ring);
  return {fmt::format("{} wait for each other", bootstrap::rank_text(ring)), ring};
}

}  // namespace gyre::comm
