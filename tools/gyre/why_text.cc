#include "tools/gyre/why_text.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::tools {
namespace {

constexpr std::size_t max_lines = 64;  // of a list in the text; --json has all

std::string span(double s) {
  if (s < 1e-3) return fmt::format("{:.0f} us", s * 1e6);
  return s < 1 ? fmt::format("{:.0f} ms", s * 1e3) : fmt::format("{:.1f} s", s);
}

// One report with what it was made from.
class Teller {
 public:
  Teller(const Sight& sight, const JobView& job) : sight_(sight), job_(job) {}

  const RankReport& report(const RankPlace& place) const { return job_.ranks.at(place); }
  const CodeNames* names(const RankReport& rank) const {
    return rank.seen == nullptr ? nullptr : &sight_.processes[rank.seen->process].head.names;
  }

  std::string communicator(std::uint64_t id) const {
    const JobView::CommunicatorView& one = job_.communicator(id);
    return one.label.empty() ? one.name : fmt::format("{} \"{}\"", one.name, one.label);
  }

  // "rank 2", with the communicator where there are several.
  std::string who(const RankPlace& place) const {
    if (job_.communicators.size() == 1) return fmt::format("rank {}", place.rank);
    return fmt::format("rank {} of {}", place.rank, communicator(place.communicator));
  }
  std::string who_and_where(const RankPlace& place) const {
    const RankReport& rank = report(place);
    if (rank.pid == 0) return who(place);
    return fmt::format("{} (host {}, pid {})", who(place), rank.host, rank.pid);
  }
  std::string list(const std::vector<RankPlace>& places) const {
    std::string text;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i == max_lines) return text + fmt::format(" and {} more", places.size() - i);
      text += fmt::format("{}{}", i == 0 ? "" : ", ", who(places[i]));
    }
    return text;
  }

  std::string call(const RankReport& rank, const TimedFlightEntry& flight) const {
    const FlightCall& made = flight.flight.call;
    const CodeNames& known = *names(rank);
    const std::string number = made.sequence == 0 ? "" : fmt::format(" number {}", made.sequence);
    return fmt::format("{}{} of {} {}", name_of(known.functions, made.function), number, made.count,
                       name_of(known.types, made.type));
  }

  std::string age(std::int64_t since_ns) const {
    return span(seconds_between(since_ns, sight_.now_ns));
  }

  // What it did last, and what it has not done yet.
  std::string history(const RankReport& rank, std::uint64_t wanted) const {
    if (rank.seen == nullptr) return "";
    const TimedFlightEntry* last = rank.seen->rank_state.last_done();
    std::string text = "; it has made no call on this communicator";
    if (last != nullptr)
      text = fmt::format("; its last call, {}, was done {} ago", call(rank, *last),
                         age(*last->end_ns));
    const std::uint64_t begun = last == nullptr ? 0 : last->flight.call.sequence;
    if (wanted > begun && rank.open == nullptr)
      text += fmt::format("; it has not called number {}", wanted);
    return text;
  }

  std::string standing(const RankReport& rank) const;
  std::string wait(const RankReport& rank) const;

  const Sight& sight_;
  const JobView& job_;
};

std::string computing(const SeenRank& seen) {
  const std::string where = fmt::format("its thread {}", seen.rank_state.caller);
  switch (seen.thread.state) {
    case 'R':
      return fmt::format("is in no call: {} runs code of the program", where);
    case 'D':
      return fmt::format("is in no call: {} waits in the kernel ({})", where,
                         seen.thread.kernel_function);
    case 'S':
      return fmt::format("is in no call: {} sleeps in code of the program{}", where,
                         seen.thread.kernel_function.empty()
                             ? ""
                             : fmt::format(" ({})", seen.thread.kernel_function));
    case state_gone:
    case 'X':
    case 'Z':
      return fmt::format("is in no call, and {}, which made the last one, has ended", where);
    default:
      return "is in no call: it runs code of the program";
  }
}

std::string condition(BlockedOn what, const std::string& peer) {
  switch (what) {
    case BlockedOn::entered:
      return peer + " to begin this call";
    case BlockedOn::connection:
      return "a connection with " + peer;
    case BlockedOn::credit:
      return "a free slot of " + peer;
    case BlockedOn::data:
      return "data from " + peer;
    case BlockedOn::drain:
      return peer + " to finish with a buffer that it was lent";
    case BlockedOn::nothing:
    case BlockedOn::kernel:
    case BlockedOn::stream:
      break;
  }
  return std::string(blocked_on_name(what));
}

std::string Teller::standing(const RankReport& rank) const {
  const auto other = sight_.others.find(rank.pid);
  switch (rank.standing) {
    case RankStanding::waits:
      return wait(rank);
    case RankStanding::joins:
      return rank.waits_for.empty() ? "is being linked to the others, who have all come"
                                    : "waits for ranks that have not come";
    case RankStanding::elsewhere:
      return fmt::format("is in a call on another communicator: {}", list(rank.waits_for));
    case RankStanding::computes:
      return computing(*rank.seen);
    case RankStanding::works:
      return fmt::format("is in {}{}: it moves data, or has no processor", call(rank, *rank.open),
                         rank.open->start_ns ? " for " + age(*rank.open->start_ns) : "");
    case RankStanding::stopped:
      return sight_.processes[rank.seen->process].facts.state == 't'
                 ? "is stopped by a debugger"
                 : "is stopped by a signal (SIGCONT lets it go on)";
    case RankStanding::dead:
      return other != sight_.others.end() && other->second.facts.state == 'Z'
                 ? "is dead: its process has ended, and its parent has not collected it"
                 : "is dead: its process is gone";
    case RankStanding::failed:
      return fmt::format("has a broken communicator: {}",
                         printable(rank.seen->rank_state.failure->text.view()));
    case RankStanding::left:
      return "has destroyed this communicator: its process shows it no more";
    case RankStanding::other_host:
      return "is on another host, which is not looked at: ask gyre why there. Should that host be "
             "dead or cut off, this communicator breaks after GYRE_LIVENESS_TIMEOUT";
    case RankStanding::closed:
      return "is not ours to look at: ask as the same user or as root";
    case RankStanding::not_there:
      return "has no process on this host: it has not come yet, or is on another host";
  }
  return "";
}

std::string Teller::wait(const RankReport& rank) const {
  const WaitRecord& told = *rank.wait;
  const std::string peer = told.peer < 0 ? "any rank" : who({rank.place.communicator, told.peer});
  return fmt::format("waits {} for {} in {} (channel {}, chunk {})", age(told.since_ns),
                     condition(told.what, peer), call(rank, *rank.open), told.channel, told.chunk);
}

std::string circle_text(const Teller& teller, const Root& root) {
  const RankReport& rank = teller.report(root.place);
  if (root.kind == RootKind::crossed) {
    std::string where;
    for (const RankPlace& place : rank.waits_for) {
      const RankReport& there = teller.report(place);
      if (there.open != nullptr)
        where = fmt::format(" in {} on {}", teller.call(there, *there.open),
                            teller.communicator(place.communicator));
    }
    return fmt::format(
        "{} is{}, and has not called number {} on {}, where others wait for it: calls in crossed "
        "order, or one left out{}",
        teller.who_and_where(root.place), where, root.wanted,
        teller.communicator(root.place.communicator), teller.history(rank, 0));
  }
  if (root.kind == RootKind::differs)
    return fmt::format("{} is in {}, and others are in another call under that number",
                       teller.who_and_where(root.place), teller.call(rank, *rank.open));
  if (root.kind == RootKind::apart)
    return fmt::format(
        "{}, of {}, which wait for each other in one call on several hosts: no data passes between "
        "them; check the network between those hosts",
        teller.who_and_where(root.place), teller.list(root.circle));
  return fmt::format("{} wait for each other in one call: that is a fault of Gyre's",
                     teller.list(root.circle));
}

// A rank has one line, not one for each of its communicators: where it is in a call, or where
// others miss it.
bool is_listed(const JobView& job, const RankReport& rank) {
  if (rank.standing == RankStanding::elsewhere) return false;
  const bool is_quiet = rank.standing == RankStanding::computes && rank.waiters.empty();
  if (!is_quiet) return true;
  const auto same_rank_elsewhere = [&](const auto& entry) {
    const RankReport& other = entry.second;
    return other.seen != nullptr && other.place != rank.place &&
           other.seen->process == rank.seen->process &&
           other.seen->rank_state.caller == rank.seen->rank_state.caller &&
           (other.standing != RankStanding::computes || !other.waiters.empty() ||
            other.place < rank.place);
  };
  return std::ranges::none_of(job.ranks, same_rank_elsewhere);
}

std::string job_title(const Teller& teller, const JobView& job) {
  std::string text;
  for (const JobView::CommunicatorView& one : job.communicators)
    text += fmt::format("{}communicator {} of {} ranks", text.empty() ? "" : ", ",
                        teller.communicator(one.id), one.size);
  return text;
}

}  // namespace

double seconds_between(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(std::max<std::int64_t>(0, to_ns - from_ns)) /
         static_cast<double>(ns_per_s);
}

std::string explain_root(const Sight& sight, const JobView& job, const Root& root) {
  const Teller teller(sight, job);
  const RankReport& rank = teller.report(root.place);
  if (root.kind == RootKind::failure)
    return fmt::format("{} {}. {} ago the communicator broke: {}", teller.who_and_where(root.place),
                       teller.standing(rank), teller.age(root.failure->at_ns),
                       printable(root.failure->text.view()));
  if (root.kind != RootKind::rank) return circle_text(teller, root);
  return fmt::format("{} {}{}", teller.who_and_where(root.place), teller.standing(rank),
                     teller.history(rank, root.wanted));
}

std::string to_text(const Sight& sight, const JobView& job) {
  const Teller teller(sight, job);
  std::string text = job_title(teller, job) + "\n";
  const auto add = [&](std::string_view indent, const std::string& line) {
    text += fmt::format("{}{}\n", indent, line);
  };
  if (job.verdict == JobView::Verdict::idle) add("  ", "nobody waits: no rank is in a call");
  if (job.verdict == JobView::Verdict::running) add("  ", "running: no rank waits for long");
  for (const Root& root : job.roots) {
    const std::string head =
        root.kind == RootKind::failure ? "broken by"
        : root.waiting.empty()
            ? "look at"
            : fmt::format("{} wait{} for",
                          root.waiting.size() == 1 ? teller.who(root.waiting[0])
                                                   : fmt::format("{} ranks", root.waiting.size()),
                          root.waiting.size() == 1 ? "s" : "");
    add("  ", fmt::format("{}: {}", head, explain_root(sight, job, root)));
  }
  add("  ", "ranks:");
  std::size_t shown = 0;
  for (const auto& [place, rank] : job.ranks) {
    if (!is_listed(job, rank)) continue;
    if (++shown > max_lines) {
      add("    ", "... (--json lists all)");
      break;
    }
    add("    ", fmt::format("{} {}", teller.who_and_where(place), teller.standing(rank)));
  }
  return text;
}

}  // namespace gyre::tools
