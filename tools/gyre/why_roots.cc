#include "tools/gyre/why_roots.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

namespace gyre::tools {
namespace {

using Sides = std::map<std::uint64_t, std::vector<RankPlace>>;
// The host, and on it the network namespace.
using Network = std::pair<std::array<std::uint8_t, 16>, std::uint64_t>;

Network network_of(const Sight& sight, const RankReport& report) {
  if (report.seen == nullptr) return {};
  const Sight::ProcessView& process = sight.processes[report.seen->process];
  return {process.head.host, process.facts.network};
}

// Tarjan's strongly connected components; only those that lead nowhere else are wanted.
class SinkComponents {
 public:
  explicit SinkComponents(const std::map<RankPlace, RankReport>& ranks) : ranks_(ranks) {}

  std::vector<std::vector<RankPlace>> find() {
    for (const auto& [place, report] : ranks_)
      if (report.standing == RankStanding::waits || report.standing == RankStanding::joins)
        if (!marks_.contains(place)) visit(place);
    return std::move(ends_);
  }

 private:
  struct Mark {
    std::size_t number, lowest;
    bool on_stack, leads_out;
  };

  // Ranks of one host: the depth is bounded by their number.
  Mark& visit(const RankPlace& place) {
    Mark& mark = marks_[place];
    mark = {marks_.size(), marks_.size(), true, false};
    stack_.push_back(place);
    for (const RankPlace& next : ranks_.at(place).waits_for) {
      const auto known = marks_.find(next);
      if (known != marks_.end() && !known->second.on_stack) {
        mark.leads_out = true;
        continue;
      }
      const Mark& other = known == marks_.end() ? visit(next) : known->second;
      mark.leads_out |= !other.on_stack || other.leads_out;
      if (other.on_stack) mark.lowest = std::min(mark.lowest, other.lowest);
    }
    if (mark.lowest == mark.number) close(place, mark.leads_out);
    return mark;
  }

  void close(const RankPlace& first, bool leads_out) {
    std::vector<RankPlace> members;
    do {
      members.push_back(stack_.back());
      stack_.pop_back();
      marks_[members.back()].on_stack = false;
    } while (members.back() != first);
    std::ranges::sort(members);
    if (!leads_out) ends_.push_back(std::move(members));
  }

  const std::map<RankPlace, RankReport>& ranks_;
  std::map<RankPlace, Mark> marks_;
  std::vector<RankPlace> stack_;
  std::vector<std::vector<RankPlace>> ends_;
};

// Those of the smaller side; all where no side is.
std::vector<RankPlace> minority(const Sides& sides) {
  std::size_t least = SIZE_MAX;
  for (const auto& [side, members] : sides) least = std::min(least, members.size());
  std::vector<RankPlace> found;
  for (const auto& [side, members] : sides)
    if (members.size() == least) found.insert(found.end(), members.begin(), members.end());
  return found;
}

auto shape(const FlightCall& call) {
  return std::tuple(call.function, call.type, call.op, call.root, call.count);
}

// By communicator of the circle, who is in another one's call: there the side with fewer ranks is
// more likely to be wrong. A circle shows one rank of each side, so all are counted.
Sides find_absent(const JobView& job, const std::vector<RankPlace>& circle) {
  Sides absent;
  for (const RankPlace& place : circle)
    if (job.ranks.at(place).standing == RankStanding::elsewhere) absent[place.communicator];
  for (const auto& [place, report] : job.ranks) {
    const auto side = absent.find(place.communicator);
    if (side != absent.end() && report.standing == RankStanding::elsewhere)
      side->second.push_back(place);
  }
  return absent;
}

// Ranks of a communicator that were seen, by what their packets need no cable for.
Sides find_networks(const Sight& sight, const JobView& job, std::uint64_t communicator) {
  std::map<Network, std::uint64_t> known;
  Sides sides;
  for (const auto& [place, report] : job.ranks)
    if (place.communicator == communicator && report.seen != nullptr)
      sides[known.emplace(network_of(sight, report), known.size()).first->second].push_back(place);
  return sides;
}

// Ranks of the circle that are in different calls under one number. Those of a later call are only
// ahead.
Sides find_shapes(const JobView& job, const std::vector<RankPlace>& circle) {
  std::map<std::uint64_t, std::map<decltype(shape({})), std::vector<RankPlace>>> numbers;
  for (const RankPlace& place : circle)
    if (const TimedFlightEntry* open = job.ranks.at(place).open)
      numbers[open->flight.call.sequence][shape(open->flight.call)].push_back(place);
  Sides sides;
  for (const auto& [number, shapes] : numbers) {
    if (shapes.size() < 2 || !sides.empty()) continue;
    for (const auto& [one, members] : shapes) sides.emplace(sides.size(), members);
  }
  return sides;
}

// Who of a circle is to be looked at first, and why.
std::vector<Root> roots_of_circle(const Sight& sight, const JobView& job,
                                  const std::vector<RankPlace>& circle) {
  const Sides absent = find_absent(job, circle), shapes = find_shapes(job, circle);
  const Sides networks = find_networks(sight, job, circle.front().communicator);
  RootKind kind = RootKind::circle;
  std::vector<RankPlace> culprits = {circle.front()};
  if (!absent.empty()) {
    kind = RootKind::crossed;
    culprits = minority(absent);
  } else if (!shapes.empty()) {
    kind = RootKind::differs;
    culprits = minority(shapes);
  } else if (std::set<Network> of_circle; networks.size() > 1) {
    for (const RankPlace& place : circle) of_circle.insert(network_of(sight, job.ranks.at(place)));
    if (of_circle.size() > 1) {
      kind = RootKind::apart;
      culprits = minority(networks);
      const auto is_elsewhere = [&](const RankPlace& one) {
        return !std::ranges::count(circle, one);
      };
      std::erase_if(culprits, is_elsewhere);
    }
    if (culprits.empty()) culprits = {circle.front()};
  }
  std::vector<Root> roots;
  for (const RankPlace& place : culprits) {
    Root root;
    root.kind = kind;
    root.place = place;
    root.circle = circle;
    roots.push_back(std::move(root));
  }
  return roots;
}

// Whoever gets to one of `ends` by waiting.
std::vector<RankPlace> all_waiting(const JobView& job, const std::vector<RankPlace>& ends) {
  std::set<RankPlace> known(ends.begin(), ends.end());
  std::vector<RankPlace> open = ends, found;
  while (!open.empty()) {
    const RankPlace place = open.back();
    open.pop_back();
    for (const RankPlace& waiter : job.ranks.at(place).waiters)
      if (known.insert(waiter).second) open.push_back(waiter);
  }
  for (const RankPlace& place : known) {
    const RankStanding standing = job.ranks.at(place).standing;
    if (standing == RankStanding::waits || standing == RankStanding::joins) found.push_back(place);
  }
  return found;
}

std::uint64_t wanted_number(const JobView& job, const RankPlace& place) {
  std::uint64_t wanted = 0;
  for (const RankPlace& waiter : job.ranks.at(place).waiters) {
    const RankReport& report = job.ranks.at(waiter);
    if (waiter.communicator == place.communicator && report.open != nullptr)
      wanted = std::max(wanted, report.open->flight.call.sequence);
  }
  return wanted;
}

std::vector<RankPlace> broken_ranks(const JobView& job, std::uint64_t communicator) {
  std::vector<RankPlace> broken;
  for (const auto& [place, report] : job.ranks)
    if (place.communicator == communicator && report.seen != nullptr &&
        report.seen->rank_state.failure)
      broken.push_back(place);
  return broken;
}

// Its failure blames ranks of the other side of a cable, and more ranks are there than here.
bool blames_a_larger_side(const Sight& sight, const JobView& job, const RankReport& report) {
  const FailureRecord& failure = *report.seen->rank_state.failure;
  const Sides sides = find_networks(sight, job, report.place.communicator);
  const auto side_of = [&](int rank) {
    const RankPlace place{report.place.communicator, rank};
    return std::ranges::find_if(
        sides, [&](const auto& side) { return std::ranges::count(side.second, place) > 0; });
  };
  const auto own = side_of(report.place.rank);
  if (own == sides.end() || failure.culprit_count == 0) return false;
  return std::all_of(failure.culprits.begin(), failure.culprits.begin() + failure.culprit_count,
                     [&](int rank) {
                       const auto side = side_of(rank);
                       return side != sides.end() && side->second.size() > own->second.size();
                     });
}

// It was told that others failed, and those that wait for it are about to be.
bool names_others(const Sight& sight, const JobView& job, const RankReport& report) {
  if (report.standing != RankStanding::failed || !report.seen->rank_state.failure) return false;
  const FailureRecord& failure = *report.seen->rank_state.failure;
  const auto end = failure.culprits.begin() + failure.culprit_count;
  return failure.culprit_count > 0 &&
         std::find(failure.culprits.begin(), end, report.place.rank) == end &&
         !blames_a_larger_side(sight, job, report);
}

// The first failure of a communicator tells who caused it. Where its ranks are on several hosts,
// each side of a cut cable blames the other: then it is the first on the side with most ranks, and
// one on each side where sides are equal.
std::vector<const RankReport*> first_failures(const Sight& sight, const JobView& job,
                                              std::uint64_t communicator) {
  std::vector<const RankReport*> found;
  std::size_t most = 0;
  for (const auto& [network, members] : find_networks(sight, job, communicator)) {
    const RankReport* first = nullptr;
    for (const RankPlace& place : members) {
      const RankReport& report = job.ranks.at(place);
      if (report.seen->rank_state.failure &&
          (first == nullptr ||
           report.seen->rank_state.failure->at_ns < first->seen->rank_state.failure->at_ns))
        first = &report;
    }
    if (first == nullptr || members.size() < most) continue;
    if (blames_a_larger_side(sight, job, *first)) continue;  // which is about to say so of this one
    if (members.size() > most) found.clear();
    most = members.size();
    found.push_back(first);
  }
  return found;
}

std::vector<RankPlace> culprits_of(const JobView& job, const RankReport& accuser) {
  const FailureRecord& failure = *accuser.seen->rank_state.failure;
  std::vector<RankPlace> culprits;
  for (int i = 0; i < failure.culprit_count; ++i) {
    const RankPlace place{accuser.place.communicator,
                          failure.culprits[static_cast<std::size_t>(i)]};
    if (job.ranks.contains(place)) culprits.push_back(place);
  }
  // Whoever calls differently is named with whom it met: one that is gone or stopped, or that
  // does something else, is the one to look at.
  const auto is_there = [&](const RankPlace& place) {
    return job.ranks.at(place).standing == RankStanding::failed;
  };
  if (!std::ranges::all_of(culprits, is_there)) std::erase_if(culprits, is_there);
  if (culprits.empty()) culprits.push_back(accuser.place);
  return culprits;
}

}  // namespace

void find_roots(const Sight& sight, JobView& job) {
  for (const std::vector<RankPlace>& end : SinkComponents(job.ranks).find()) {
    if (end.size() == 1 && names_others(sight, job, job.ranks.at(end.front()))) continue;
    std::vector<Root> roots;
    if (end.size() > 1) {
      roots = roots_of_circle(sight, job, end);
    } else {
      roots.emplace_back();
      roots.back().place = end.front();
    }
    for (Root& root : roots) {
      root.wanted = wanted_number(job, root.place);
      root.waiting = all_waiting(job, end);
      std::erase(root.waiting, root.place);
      job.roots.push_back(std::move(root));
    }
  }
  // The rank for which most wait comes first.
  std::ranges::stable_sort(job.roots, std::greater(),
                           [](const Root& root) { return root.waiting.size(); });
}

void find_failures(const Sight& sight, JobView& job) {
  for (const JobView::CommunicatorView& communicator : job.communicators) {
    for (const RankReport* first : first_failures(sight, job, communicator.id)) {
      const FailureRecord& failure = *first->seen->rank_state.failure;
      for (const RankPlace& culprit : culprits_of(job, *first)) {
        const auto is_known = [&](const Root& root) {
          return root.kind == RootKind::failure && root.place == culprit;
        };
        if (std::ranges::any_of(job.roots, is_known)) continue;
        Root root;
        root.kind = RootKind::failure;
        root.place = culprit;
        root.failure = &failure;
        root.waiting = broken_ranks(job, communicator.id);
        std::erase(root.waiting, root.place);
        job.roots.push_back(std::move(root));
      }
    }
  }
}

}  // namespace gyre::tools
