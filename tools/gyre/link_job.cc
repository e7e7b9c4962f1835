#include "tools/gyre/link_job.h"

#include "lib/base/clock.h"
#include "lib/base/owned.h"
#include "lib/base/settings.h"
#include "tools/gyre/link_plan.h"
#include "tools/gyre/link_reports.h"
#include "tools/gyre/link_rounds.h"
#include "tools/gyre/link_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::tools {
namespace {

constexpr std::uint64_t max_message_bytes = 16 << 20;
// A round's time. A pair that works takes a fourth; the rest is for one that does not: its ranks
// wait for each other for some of it, and then for single calls.
constexpr double min_round_s = 3, max_round_s = 5;
constexpr double work_share = 0.25, call_share = 0.25;
constexpr double max_work_s = 0.8;
constexpr double usual_seconds = 60;

std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(seconds * ns_per_s); }

struct MemoryTraits {
  using Handle = void*;
  static Handle none() { return nullptr; }
  static void close(Handle memory) { (void)gyreMemFree(memory); }
};

// How the rounds share the time.
struct Timetable {
  double round_s = max_round_s;
  double seconds = usual_seconds;  // for everything

  std::int64_t work_ns() const { return to_ns(std::min(max_work_s, work_share * round_s)); }
  std::int64_t call_ns() const { return to_ns(call_share * round_s); }
};

Result<Timetable> make_timetable(std::size_t rounds, double seconds) {
  // Two more for links that are measured again.
  const auto all = static_cast<double>(rounds + 2);
  if (seconds > 0 && all * min_round_s > seconds)
    return invalid_usage(
        fmt::format("{} rounds may take {:.0f} s, of {:.0f} s each; --seconds {} is too little",
                    all, all * min_round_s, min_round_s, seconds));
  Timetable made;
  made.seconds = seconds > 0 ? seconds : std::max(usual_seconds, all * min_round_s);
  made.round_s = std::clamp(made.seconds / all, min_round_s, max_round_s);
  return made;
}

// One for each pair that is measured, and one to repeat it; and one between rank 0 and each rank.
enum class IdUse : std::size_t { measure, repeat, report };
constexpr std::size_t id_uses = 3;

class PairIds {
 public:
  // The lower rank of a pair makes its ids: a collective call.
  Status exchange(gyreComm_t comm, const LinkPlan& plan) {
    const auto ranks = static_cast<std::size_t>(plan.facts.ranks);
    ids_.assign(ranks * id_uses, gyreUniqueId{});
    for (const LinkPair& pair : plan.pairs)
      if (pair.low == plan.rank)
        for (const IdUse use : {IdUse::measure, IdUse::repeat}) GYRE_TRY(make(pair.high, use));
    for (int peer = 1; plan.rank == 0 && peer < plan.facts.ranks; ++peer)
      GYRE_TRY(make(peer, IdUse::report));
    std::vector<gyreUniqueId> theirs(ids_.size());
    GYRE_TRY(checked_call(gyreAlltoAll(ids_.data(), theirs.data(), id_uses * sizeof(gyreUniqueId),
                                       gyreUint8, comm, nullptr),
                          comm, "gyreAlltoAll"));
    for (std::size_t peer = 0; peer < static_cast<std::size_t>(plan.rank); ++peer)
      std::copy_n(theirs.begin() + static_cast<std::ptrdiff_t>(peer * id_uses), id_uses,
                  ids_.begin() + static_cast<std::ptrdiff_t>(peer * id_uses));
    return {};
  }
  const gyreUniqueId& of(int peer, IdUse use) const { return ids_[place(peer, use)]; }

 private:
  static std::size_t place(int peer, IdUse use) {
    return static_cast<std::size_t>(peer) * id_uses + static_cast<std::size_t>(use);
  }
  Status make(int peer, IdUse use) {
    return checked_call(gyreGetUniqueId(&ids_[place(peer, use)]), nullptr, "gyreGetUniqueId");
  }

  std::vector<gyreUniqueId> ids_;
};

// Of the two ends of a link, the lower rank's word counts where both say something.
class ReportedLinks {
 public:
  void add(const std::vector<LinkMeasurement>& links, int rank) {
    for (const LinkMeasurement& link : links) {
      const bool is_leader = link.pair.low == rank;
      const auto [place, is_new] = by_pair_.try_emplace(link.pair, link);
      if (!is_new && (is_leader || link.was_repeated > place->second.was_repeated))
        place->second = with_damage(link, place->second);
    }
  }
  std::vector<LinkMeasurement> all() const {
    std::vector<LinkMeasurement> links;
    for (const auto& [pair, link] : by_pair_) links.push_back(link);
    return links;
  }

 private:
  // A changed byte stays one, whoever saw it.
  static LinkMeasurement with_damage(LinkMeasurement link, const LinkMeasurement& before) {
    link.has_garbled_talk |= before.has_garbled_talk;
    if (link.up.damage.bytes == 0) link.up.damage = before.up.damage;
    if (link.down.damage.bytes == 0) link.down.damage = before.down.damage;
    return link;
  }
  std::map<LinkPair, LinkMeasurement> by_pair_;
};

class LinkJob {
 public:
  LinkJob(const LinkQuestion& question, const std::function<void(const std::string&)>& say)
      : question_(question), say_(say) {}

  Result<std::optional<LinkAnswer>> run() {
    GYRE_TRY(join());
    GYRE_TRY(take_memory());
    measure_rounds();
    if (plan_.rank == 0) {
      GYRE_ASSIGN(LinkAnswer answer, collect());
      return std::optional(std::move(answer));
    }
    // Rank 0 finds that by itself. A code other than 0 would make a launcher end it before it has
    // said so.
    if (const Status told = report(); !told.ok())
      say_(fmt::format("rank {} could not tell rank 0 what it has measured: {}", plan_.rank,
                       told.full_text()));
    return std::optional<LinkAnswer>();
  }

 private:
  // The job's own communicator: all that it is asked for is in here.
  Status join();
  Status take_memory();
  std::string promise() const;

  void measure_rounds();
  LinkMeasurement measure(const LinkPair& pair, int round, IdUse use, std::int64_t until_ns) const;
  LinkMeasurement repeat(const LinkPair& pair) const;

  Result<OwnedPairComm> meet_for_report(int peer, std::int64_t patience_ns) const;
  void repeat_slow(const LinkVerdict& first, std::map<int, OwnedPairComm>& reporters,
                   ReportedLinks& links) const;
  Result<LinkAnswer> collect();
  double seconds_since_begin() const {
    return static_cast<double>(SystemClock::read() - begun_ns_) / ns_per_s;
  }
  Status report();

  const LinkQuestion& question_;
  const std::function<void(const std::string&)>& say_;
  LinkPlan plan_;
  LinkRounds rounds_;
  Timetable times_;
  PairIds ids_;
  Owned<MemoryTraits> memory_;
  std::int64_t begun_ns_ = 0;  // near the same moment on all ranks
  std::vector<LinkMeasurement> own_;
};

Status LinkJob::join() {
  // Deadlines of the job's calls would stand above those of this program.
  std::vector<std::string> warnings;
  GYRE_ASSIGN(const Settings settings, read_settings(&warnings));
  for (const char* const name : {"GYRE_TIMEOUT", "GYRE_INIT_TIMEOUT"}) (void)unsetenv(name);
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  config.commName = "gyre link";
  config.timeoutMs =
      static_cast<int>(std::min<std::int64_t>(settings.init_timeout_s, INT_MAX / 1000) * 1000);
  config.initTimeoutMs = config.timeoutMs;
  gyreComm_t joined = nullptr;
  GYRE_TRY(checked_call(gyreCommInitEnv(&joined, &config), nullptr, "gyreCommInitEnv"));
  OwnedPairComm comm(joined);
  GYRE_ASSIGN(plan_, learn_links(comm.get(), question_.all_pairs));
  rounds_ = find_rounds(plan_.pairs, plan_.facts.host_of_rank);
  GYRE_ASSIGN(times_, make_timetable(rounds_.size(), question_.seconds));
  GYRE_TRY(ids_.exchange(comm.get(), plan_));
  GYRE_TRY(checked_call(gyreBarrier(comm.get(), nullptr), comm.get(), "gyreBarrier"));
  begun_ns_ = SystemClock::read();
  if (plan_.rank == 0) say_(promise());
  return checked_call(gyreCommDestroy(comm.release()), nullptr, "gyreCommDestroy");
}

std::string LinkJob::promise() const {
  const auto rounds = static_cast<double>(rounds_.size());
  const double work_s = static_cast<double>(times_.work_ns()) / ns_per_s;
  return fmt::format("{} ranks on {}, {} in {}: about {:.0f} s, and {:.0f} s at most",
                     plan_.facts.ranks, counted(plan_.facts.host_names.size(), "host"),
                     counted(plan_.pairs.size(), "link"), counted(rounds_.size(), "round"),
                     std::ceil(rounds * work_s), times_.seconds);
}

Status LinkJob::take_memory() {
  void* memory = nullptr;
  GYRE_TRY(checked_call(gyreMemAllocOn(&memory, 2 * max_message_bytes, GYRE_DEVICE_HOST), nullptr,
                        "gyreMemAllocOn"));
  memory_ = Owned<MemoryTraits>(memory);
  return {};
}

// What people read of a failure; the library's words go beside it.
std::string failure_text(const Status& status, const std::string& doing) {
  switch (status.code()) {
    case Code::Timeout:
      return fmt::format("no answer in time while {}", doing);
    case Code::RemoteError:
    case Code::Mismatch:
      return fmt::format("it broke off while {}", doing);
    default:
      return fmt::format("it failed while {}", doing);
  }
}

LinkMeasurement LinkJob::measure(const LinkPair& pair, int round, IdUse use,
                                 std::int64_t until_ns) const {
  const bool leads = pair.low == plan_.rank;
  const int peer = leads ? pair.high : pair.low;
  const OwnLink& link = plan_.own[static_cast<std::size_t>(peer)];
  LinkMeasurement made;
  made.pair = pair;
  made.round = round;
  made.kind = link.kind;
  made.known_bytes_per_s = link.known_bytes_per_s;
  made.was_repeated = use == IdUse::repeat;
  std::string doing = "connecting";
  const auto run = [&]() -> Status {
    // The last call may begin one call's time before the end.
    const std::int64_t last_ns = until_ns - times_.call_ns();
    GYRE_ASSIGN(OwnedPairComm comm,
                meet_pair(ids_.of(peer, use), leads ? 0 : 1,
                          last_ns - times_.call_ns() - SystemClock::read(), times_.call_ns(),
                          fmt::format("link of ranks {} and {}", pair.low, pair.high)));
    auto* const memory = static_cast<std::byte*>(memory_.get());
    const SessionTask task{.comm = comm.get(),
                           .seed = question_.seed + static_cast<std::uint64_t>(pair.low) * 1000003 +
                                   static_cast<std::uint64_t>(pair.high) * 8191,
                           .work_ns = times_.work_ns(),
                           .until_ns = last_ns,
                           .outgoing = {memory, max_message_bytes},
                           .incoming = {memory + max_message_bytes, max_message_bytes}};
    GYRE_TRY(leads ? lead_session(task, made, doing) : follow_session(task, made, doing));
    return checked_call(gyreCommDestroy(comm.release()), nullptr, "gyreCommDestroy");
  };
  if (const Status status = run(); !status.ok()) {
    made.failure = failure_text(status, doing);
    made.library_text = fmt::format("{} (there rank 0 is rank {}, and rank 1 is rank {})",
                                    status.full_text(), pair.low, pair.high);
  }
  return made;
}

void LinkJob::measure_rounds() {
  for (std::size_t round = 0; round < rounds_.size(); ++round) {
    if (plan_.rank == 0) say_(fmt::format("round {} of {}", round + 1, rounds_.size()));
    const auto own = std::ranges::find_if(
        rounds_[round], [&](const LinkPair& pair) { return pair.has(plan_.rank); });
    if (own == rounds_[round].end()) continue;
    const std::int64_t until_ns =
        begun_ns_ + to_ns(times_.round_s * static_cast<double>(round + 1));
    own_.push_back(measure(*own, static_cast<int>(round), IdUse::measure, until_ns));
  }
}

LinkMeasurement LinkJob::repeat(const LinkPair& pair) const {
  return measure(pair, static_cast<int>(rounds_.size()), IdUse::repeat,
                 SystemClock::read() + to_ns(times_.round_s));
}

// ------------------------------------------------------------------------------- the reports

Result<OwnedPairComm> LinkJob::meet_for_report(int peer, std::int64_t patience_ns) const {
  // Rank 0 takes them one by one, and has links measured again in between.
  const std::int64_t call_ns = to_ns(times_.seconds + 10 + 2 * plan_.facts.ranks);
  return meet_pair(ids_.of(peer, IdUse::report), plan_.rank == 0 ? 0 : 1, patience_ns, call_ns,
                   fmt::format("report of rank {}", std::max(peer, plan_.rank)));
}

Status LinkJob::report() {
  const std::int64_t rounds_end_ns =
      begun_ns_ + to_ns(times_.round_s * static_cast<double>(rounds_.size()));
  GYRE_ASSIGN(
      OwnedPairComm comm,
      meet_for_report(0, rounds_end_ns + to_ns(5 + 2 * plan_.facts.ranks) - SystemClock::read()));
  GYRE_TRY(send_report(comm.get(), own_));
  for (;;) {
    GYRE_ASSIGN(const std::optional<LinkPair> again, receive_errand(comm.get(), plan_.facts.ranks));
    if (!again) break;
    if (!again->has(plan_.rank))
      return invalid_argument("rank 0 asks this rank for a link of two others");
    GYRE_TRY(send_report(comm.get(), {repeat(*again)}));
  }
  return checked_call(gyreCommDestroy(comm.release()), nullptr, "gyreCommDestroy");
}

// Links that were slow beside others are measured alone, the worst first, while there is time.
void LinkJob::repeat_slow(const LinkVerdict& first, std::map<int, OwnedPairComm>& reporters,
                          ReportedLinks& links) const {
  bool is_first = true;
  for (const JudgedLink& link : first.links) {
    const LinkPair& pair = link.measured.pair;
    const auto answers = [&](int rank) { return rank == 0 || reporters.contains(rank); };
    if (link.finding != LinkFinding::slow || !answers(pair.low) || !answers(pair.high)) continue;
    if (!std::exchange(is_first, false) &&
        seconds_since_begin() + times_.round_s > times_.seconds) {
      say_("no time to measure the other slow links again");
      return;
    }
    say_(fmt::format("measuring {} - {} again, alone", pair.low, pair.high));
    const auto with_both = [&](auto&& act) {
      for (const int rank : {pair.low, pair.high})
        if (const auto one = reporters.find(rank); one != reporters.end())
          if (!act(rank, one->second.get())) reporters.erase(one);
    };
    with_both([&](int, gyreComm_t comm) { return send_errand(comm, pair).ok(); });
    if (pair.has(0)) links.add({repeat(pair)}, 0);
    with_both([&](int rank, gyreComm_t comm) {
      const auto told = receive_report(comm, rank, plan_.facts.ranks);
      if (told.ok()) links.add(*told, rank);
      return told.ok();
    });
  }
}

Result<LinkAnswer> LinkJob::collect() {
  LinkJobFacts& facts = plan_.facts;
  facts.reported.assign(static_cast<std::size_t>(facts.ranks), false);
  facts.reported[0] = true;
  ReportedLinks links;
  links.add(own_, 0);
  say_("collecting");
  const std::int64_t rounds_end_ns =
      begun_ns_ + to_ns(times_.round_s * static_cast<double>(rounds_.size()));
  std::map<int, OwnedPairComm> reporters;
  for (int rank = 1; rank < facts.ranks; ++rank) {
    Result<OwnedPairComm> comm =
        meet_for_report(rank, rounds_end_ns + to_ns(1) - SystemClock::read());
    if (!comm.ok()) continue;
    const Result<std::vector<LinkMeasurement>> told =
        receive_report(comm->get(), rank, facts.ranks);
    if (!told.ok()) continue;
    links.add(*told, rank);
    facts.reported[static_cast<std::size_t>(rank)] = true;
    reporters.emplace(rank, std::move(*comm));
  }
  // Beside others, as all were measured: what a link does alone raises nobody's expectation.
  const std::vector<KindExpectation> kinds = find_expectations(links.all());
  repeat_slow(judge_links(facts, links.all(), kinds, question_.slow_below), reporters, links);
  for (auto& [rank, comm] : reporters)
    if (send_errand(comm.get(), std::nullopt).ok()) (void)gyreCommDestroy(comm.release());
  facts.seconds = seconds_since_begin();
  LinkVerdict verdict = judge_links(facts, links.all(), kinds, question_.slow_below);
  return LinkAnswer{std::move(facts), std::move(verdict)};
}

}  // namespace

Result<std::optional<LinkAnswer>> measure_links(
    const LinkQuestion& question, const std::function<void(const std::string&)>& say) {
  return LinkJob(question, say).run();
}

}  // namespace gyre::tools
