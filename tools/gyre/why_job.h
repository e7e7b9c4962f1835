// The facts about a job whose ranks were observed, and the conclusion for each rank. Words:
//
//   Sight         all observations: processes, rank states, the kernel's facts of threads
//   RankStanding  what a rank is doing; only `waits` leads on to other ranks
//   root          a rank, or a circle of ranks, that others wait for and that waits for no other
#pragma once

#include "lib/base/state_page_reader.h"
#include "tools/gyre/process_scan.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gyre::tools {

struct SeenRank {
  std::size_t process = 0;  // index
  RankSnapshot rank_state;
  ThreadFacts thread;   // of its last caller
  bool steady = false;  // nothing of it changed between two looks
};

struct Sight {
  struct ProcessView {
    ProcessFacts facts;
    StatePageHead head;
  };
  std::vector<ProcessView> processes;
  std::vector<SeenRank> ranks;
  // Processes that a rank state names and that show no state page: by id. Closed: we may not look.
  struct HiddenProcess {
    ProcessFacts facts;
    bool closed = false;
  };
  std::map<long, HiddenProcess> others;
  std::int64_t now_ns = 0;
};

enum class RankStanding {
  waits,       // for a peer, in a call
  joins,       // for ranks that have not come
  elsewhere,   // not in a call here, but in one of another communicator
  computes,    // in no call
  works,       // in a call, without waiting long
  stopped,     // by a signal or a debugger
  dead,        // its process is gone or a zombie
  failed,      // its communicator is broken
  left,        // its process lives and has no such communicator any more
  other_host,  // not looked at
  closed,      // not ours to look at
  not_there,   // no process is known to be this rank
};
std::string_view standing_name(RankStanding standing);

// One rank of one communicator.
struct RankPlace {
  std::uint64_t communicator = 0;
  std::int32_t rank = 0;
  friend auto operator<=>(const RankPlace&, const RankPlace&) = default;
};

struct RankReport {
  RankPlace place;
  RankStanding standing = RankStanding::not_there;
  const SeenRank* seen = nullptr;  // null: it showed no rank state
  long pid = 0;                    // 0: not known
  std::string host;
  const TimedFlightEntry* open = nullptr;  // the call that it is in; of two, one that waits
  const WaitRecord* wait = nullptr;        // waits, joins: in it
  // waits, joins, elsewhere: for whom. Others wait for it alone.
  std::vector<RankPlace> waits_for;
  std::vector<RankPlace> waiters;  // directly
};

enum class RootKind {
  rank,     // what its standing says
  crossed,  // a circle through several communicators
  differs,  // a circle of ranks that are in different calls under one number
  apart,    // a circle in one call, through a network
  circle,   // a circle in one call, on one host
  failure,  // others broke the communicator off because of it
};
std::string_view root_kind_name(RootKind kind);

struct Root {
  RootKind kind = RootKind::rank;
  RankPlace place;
  std::uint64_t wanted = 0;        // number of the call that others wait in; 0: of no collective
  std::vector<RankPlace> waiting;  // whoever waits for it, directly or not
  std::vector<RankPlace> circle;   // with it, if there is one
  const FailureRecord* failure = nullptr;
};

struct JobView {
  struct CommunicatorView {
    std::uint64_t id = 0;
    std::string name, label;
    std::int32_t size = 0;
  };
  std::vector<CommunicatorView> communicators;
  std::map<RankPlace, RankReport> ranks;
  std::vector<Root> roots;
  enum class Verdict { idle, running, waiting, failed };
  Verdict verdict = Verdict::idle;

  const CommunicatorView& communicator(std::uint64_t id) const;
};
std::string_view verdict_name(JobView::Verdict verdict);

}  // namespace gyre::tools
