#include "tools/gyre/why_graph.h"

#include "tools/gyre/why_roots.h"

#include <algorithm>
#include <set>

namespace gyre::tools {
namespace {

// Beyond this size of a communicator only ranks that were seen or are waited for are listed.
constexpr std::int32_t max_listed = 4096;

bool has_ended(char state) { return state == state_gone || state == 'Z' || state == 'X'; }
bool is_stopped(char state) { return state == 'T' || state == 't'; }

// The wait of a rank that looks for others; null: it does not.
const WaitRecord* joining_wait(const SeenRank& rank) {
  const auto& waits = rank.rank_state.waits;
  const auto found = std::ranges::find(waits, WaitPhase::joining, &WaitRecord::phase);
  return found == waits.end() ? nullptr : &*found;
}

bool is_in_a_call(const SeenRank& rank) {
  return !rank.rank_state.open().empty() || joining_wait(rank) != nullptr;
}

// One job's reports, made from a sight.
class Reporter {
 public:
  Reporter(const Sight& sight, JobView& job) : sight_(sight), job_(job) {}

  void report() {
    for (const SeenRank& rank : sight_.ranks) {
      const RankIdentity& identity = rank.rank_state.identity;
      const RankPlace place{identity.communicator, identity.rank};
      seen_.emplace(place, &rank);
      if (!rank.rank_state.peers.empty()) met_.emplace(identity.communicator, &rank);
    }
    for (const JobView::CommunicatorView& communicator : job_.communicators) {
      const std::int32_t listed = std::min(communicator.size, max_listed);
      for (std::int32_t rank = 0; rank < listed; ++rank) add({communicator.id, rank});
    }
    for (const auto& [place, rank] : seen_)
      if (is_ours(place.communicator)) add(place);
    // Once all standings are known.
    for (auto& [place, report] : job_.ranks)
      if (report.standing == RankStanding::joins && report.waits_for.empty()) find_missing(report);
    for (const auto& [place, report] : std::map(job_.ranks))
      for (const RankPlace& target : report.waits_for) {
        add(target);
        job_.ranks[target].waiters.push_back(place);
      }
  }

 private:
  bool is_ours(std::uint64_t communicator) const {
    return std::ranges::any_of(job_.communicators,
                               [&](const auto& one) { return one.id == communicator; });
  }

  void add(const RankPlace& place) {
    if (job_.ranks.contains(place)) return;
    RankReport& report = job_.ranks[place];
    report.place = place;
    const auto seen = seen_.find(place);
    if (seen == seen_.end()) return judge_unseen(report);
    report.seen = seen->second;
    const Sight::ProcessView& process = sight_.processes[report.seen->process];
    report.pid = process.facts.pid;
    report.host = printable(process.head.host_name.view());
    judge_seen(report, process.facts);
  }

  void judge_unseen(RankReport& report) {
    const auto met = met_.find(report.place.communicator);
    const auto rank = static_cast<std::size_t>(report.place.rank);
    if (met == met_.end() || rank >= met->second->rank_state.peers.size()) return;
    const SeenRank& teller = *met->second;
    const RankPeers::Peer& peer = teller.rank_state.peers[rank];
    const HostEntry& host = teller.rank_state.hosts[peer.host];
    report.pid = peer.pid;
    report.host = printable(host.name.view());
    // Anybody's state page may be in sight, and say anything of its host.
    if (host.token != sight_.processes[teller.process].head.host) {
      report.standing = RankStanding::other_host;
      return;
    }
    const bool shows_a_state_page = std::ranges::any_of(sight_.processes, [&](const auto& process) {
      return process.facts.own_pid == report.pid && !has_ended(process.facts.state);
    });
    const auto other = sight_.others.find(report.pid);
    const bool lives = other != sight_.others.end() && !has_ended(other->second.facts.state);
    if (lives && other->second.closed)
      report.standing = RankStanding::closed;
    else
      report.standing = lives || shows_a_state_page ? RankStanding::left : RankStanding::dead;
  }

  void judge_seen(RankReport& report, const ProcessFacts& process) {
    const SeenRank& seen = *report.seen;
    const std::vector<const TimedFlightEntry*> open = seen.rank_state.open();
    if (!open.empty()) report.open = open.back();
    if (has_ended(process.state))
      report.standing = RankStanding::dead;
    else if (is_stopped(process.state) || is_stopped(seen.thread.state))
      report.standing = RankStanding::stopped;
    else if (seen.rank_state.failure)
      report.standing = RankStanding::failed;
    else if (report.open != nullptr)
      judge_calls(report, open);
    else if (joining_wait(seen) != nullptr)
      judge_joining(report);
    else
      look_elsewhere(report);
  }

  // A collective, or sends and receives, or both in one group.
  static void judge_calls(RankReport& report, const std::vector<const TimedFlightEntry*>& open) {
    report.standing = RankStanding::works;
    for (const TimedFlightEntry* flight : open) {
      const WaitRecord* wait = report.seen->rank_state.wait_of(flight->flight.serial);
      if (wait == nullptr || wait->what == BlockedOn::nothing || !report.seen->steady) continue;
      report.standing = RankStanding::waits;
      report.open = flight;
      report.wait = wait;
      add_peer(report, *wait);
    }
  }

  static void judge_joining(RankReport& report) {
    report.standing = RankStanding::joins;
    report.wait = joining_wait(*report.seen);
    add_peer(report, *report.wait);
  }

  static void add_peer(RankReport& report, const WaitRecord& wait) {
    if (wait.peer >= 0 && wait.peer < report.seen->rank_state.identity.size)
      report.waits_for.push_back({report.place.communicator, wait.peer});
  }

  // The same thread may be in a call of another communicator.
  void look_elsewhere(RankReport& report) {
    report.standing = RankStanding::computes;
    for (const SeenRank& other : sight_.ranks) {
      if (other.process != report.seen->process || &other == report.seen ||
          other.rank_state.caller != report.seen->rank_state.caller || !is_in_a_call(other))
        continue;
      report.standing = RankStanding::elsewhere;
      report.waits_for.push_back(
          {other.rank_state.identity.communicator, other.rank_state.identity.rank});
    }
  }

  void find_missing(RankReport& report) {
    for (const auto& [place, other] : job_.ranks) {
      if (place.communicator != report.place.communicator) continue;
      const bool has_come = other.standing == RankStanding::joins ||
                            (other.seen != nullptr && !other.seen->rank_state.peers.empty());
      if (!has_come || other.standing == RankStanding::stopped ||
          other.standing == RankStanding::dead)
        report.waits_for.push_back(place);
    }
  }

  const Sight& sight_;
  JobView& job_;
  std::map<RankPlace, const SeenRank*> seen_;
  std::map<std::uint64_t, const SeenRank*> met_;  // one whose rank state knows its peers
};

JobView::Verdict judge(const JobView& job) {
  if (!job.roots.empty()) {
    const bool waits = std::ranges::any_of(
        job.roots, [](const Root& root) { return root.kind != RootKind::failure; });
    return waits ? JobView::Verdict::waiting : JobView::Verdict::failed;
  }
  const bool moves = std::ranges::any_of(job.ranks, [](const auto& entry) {
    return entry.second.seen != nullptr &&
           (entry.second.open != nullptr || !entry.second.seen->steady);
  });
  return moves ? JobView::Verdict::running : JobView::Verdict::idle;
}

// Communicators by job: two that one process has belong together.
std::vector<std::set<std::uint64_t>> group(const Sight& sight) {
  std::map<std::size_t, std::set<std::uint64_t>> of_process;
  for (const SeenRank& rank : sight.ranks)
    of_process[rank.process].insert(rank.rank_state.identity.communicator);
  std::vector<std::set<std::uint64_t>> groups;
  for (auto& entry : of_process) {
    std::set<std::uint64_t>& mine = entry.second;
    std::erase_if(groups, [&](const std::set<std::uint64_t>& known) {
      const bool shared =
          std::ranges::any_of(known, [&](std::uint64_t one) { return mine.contains(one); });
      if (shared) mine.insert(known.begin(), known.end());
      return shared;
    });
    groups.push_back(mine);
  }
  return groups;
}

}  // namespace

std::vector<JobView> find_jobs(const Sight& sight) {
  std::vector<JobView> jobs;
  for (const std::set<std::uint64_t>& ids : group(sight)) {
    JobView& job = jobs.emplace_back();
    for (const std::uint64_t id : ids) {
      const auto one = std::ranges::find_if(sight.ranks, [&](const SeenRank& rank) {
        return rank.rank_state.identity.communicator == id;
      });
      const RankIdentity& identity = one->rank_state.identity;
      job.communicators.push_back(
          {id, printable(identity.name.view()), printable(identity.label.view()), identity.size});
    }
    Reporter(sight, job).report();
    find_roots(sight, job);
    find_failures(sight, job);
    job.verdict = judge(job);
  }
  return jobs;
}

}  // namespace gyre::tools
