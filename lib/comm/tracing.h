// Tracing: finds the cause of a wait that is too long. It asks the rank that this rank waits for
// whom it waits for in turn, and so on. A rank that waits for nobody is to blame. If the ranks wait
// for each other in a ring, all of them are to blame. If one waits for a message of any rank, all
// others are asked.
#pragma once

#include "lib/comm/whereabouts.h"
#include "lib/control/control.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gyre::comm {

class Tracing {
 public:
  struct TraceVerdict {
    std::string text;  // "rank 3 has not begun it; ranks 0-2 wait for it"
    std::vector<int> culprits;
  };

  bool is_under_way() const { return !way_.empty(); }
  // `sequence` is the number of the collective that waits for `peer`, on this rank; 0: it is sends
  // and receives that wait.
  void begin(control::Membership& membership, int own_rank, int peer, std::uint64_t sequence,
             std::int64_t now_ns);
  // The same for a receive from any rank.
  void begin_with_all(control::Membership& membership, int own_rank, std::int64_t now_ns);
  // Once it has come to the end. An answer takes at most `max_answer_ns`, all at most
  // `max_trace_ns`.
  std::optional<TraceVerdict> advance(control::Membership& membership, std::int64_t now_ns);
  void clear() {
    way_.clear();
    asked_.clear();
    not_waiting_.clear();
    left_.clear();
    taker_ = -1;
  }

 private:
  static constexpr std::int64_t max_answer_ns = 200 * ns_per_ms;
  static constexpr std::int64_t max_trace_ns = 800 * ns_per_ms;

  void ask(control::Membership& membership, int rank, std::int64_t now_ns);
  void ask_all(control::Membership& membership, std::int64_t now_ns);
  static void send_question(control::Membership& membership, int rank, std::uint64_t number);
  std::optional<Whereabouts> answer_of(control::Membership& membership, int rank) const;
  std::optional<TraceVerdict> advance_with_all(control::Membership& membership,
                                               std::int64_t now_ns);
  TraceVerdict end_with_all() const;
  Whereabouts::ReportedWait wait_to_follow(const Whereabouts& seen) const;
  std::string standing_text(const Whereabouts& seen) const;
  TraceVerdict end_at(int rank, std::string how) const;
  TraceVerdict end_in_ring(int rank) const;

  std::vector<int> way_;          // this rank first, then whom each waits for; empty: not under way
  int taker_ = -1;                // who waits for any rank, once all are asked
  std::vector<int> asked_;        // of those: who has not answered
  std::vector<int> not_waiting_;  // and who waits for nobody
  std::vector<int> left_;         // who has left the communicator
  std::uint64_t sequence_ = 0;
  std::uint64_t questions_ = 0;  // of all tracings: an answer that comes late is of another number
  std::int64_t answer_until_ns_ = 0, trace_until_ns_ = 0;
};

}  // namespace gyre::comm
