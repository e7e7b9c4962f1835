#include "tools/gyre/why_command.h"

#include "lib/base/flight_file.h"
#include "lib/base/settings.h"
#include "lib/command_line/command_line.h"
#include "tools/gyre/flight_trace.h"
#include "tools/gyre/own_file.h"
#include "tools/gyre/why_graph.h"
#include "tools/gyre/why_json.h"
#include "tools/gyre/why_text.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <strings.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gyre::tools {
namespace {

using namespace command_line;

constexpr const char* description =
    "Says who waits for whom in the jobs of this host, on what and since when, and names the rank "
    "at which it all ends: stopped, dead, busy with code of the program, or in another call. It "
    "reads what each process shows in memory; it stops and disturbs none, and a process may itself "
    "be stopped or loop. Only processes of the same user are seen, or all as root. Of ranks on "
    "other hosts only the name of the host and the process id are known, and what this host's "
    "ranks heard of their end; ask gyre why there for more. Exit code 0 whatever it found, 1 if it "
    "could not look, 2 for a wrong option.";

struct Options {
  std::string target;
  bool json = false;
  int sample_ms = 100;
  std::string dump;
  bool dumps = false;
  std::string trace;
  std::vector<std::string> from;
  std::string code;
};

// The option that asks for files of flights.
const Option& declare(CommandLine& line, Options& options) {
  line.add_option(
      "target", options.target, any_text(), "PID|JOB",
      "a process id (its whole job; of gyre run: what it started), or the name or label "
      "of a communicator; default: all jobs of this host");
  line.add_flag("--json", options.json, "print for programs instead; the schema is below");
  line.add_option("--sample", options.sample_ms, whole(1, 60000), "MS",
                  "milliseconds between two looks: what does not change counts as waiting; default "
                  "100");
  Option& dump = line.add_option(
      "--dump", options.dump, any_text(), "FILE",
      "write each rank's last operations to a file of this name, with %h, %p and %r for host, "
      "process id and rank; default gyre-flights-%h-%p-%r.jsonl");
  dump.value_is_optional = true;
  line.add_option("--trace", options.trace, any_text(), "FILE",
                  "write a timeline of the last operations, for ui.perfetto.dev; a link, a FIFO or "
                  "another user's file of that name is refused");
  line.add_option("--from", options.from, any_text(), "FILES",
                  "with --trace: take the operations from files that --dump or GYRE_FLIGHT_FILE "
                  "wrote, not from processes")
      .takes_several = true;
  line.add_option(
      "--explain", options.code, any_text(), "CODE",
      "say what a result code means and what to do: a number, or a name as gyreTimeout");
  line.add_example("gyre why");
  line.add_example("gyre why 4711 --trace job.json");
  line.add_example("gyre why --explain gyreTimeout");
  line.set_footer(json_schema);
  return dump;
}

// ------------------------------------------------------------------------------- codes

struct CodeEntry {
  int value;
  std::string_view name;
};
constexpr CodeEntry codes[] = {
#define GYRE_CODE_ENTRY(name, value, text, remedy) {value, #name},
    GYRE_CODES(GYRE_CODE_ENTRY)
#undef GYRE_CODE_ENTRY
};

int explain_code(const std::string& wanted) {
  std::string name = wanted;
  if (name.size() > 4 && strncasecmp(name.c_str(), "gyre", 4) == 0) name = name.substr(4);
  for (const CodeEntry& entry : codes) {
    if (wanted != std::to_string(entry.value) &&
        strcasecmp(std::string(entry.name).c_str(), name.c_str()) != 0)
      continue;
    const Code code = static_cast<Code>(entry.value);
    fmt::print("gyre{} ({}): {}\nwhat to do: {}\n", entry.name, entry.value, code_text(code),
               code_remedy(code));
    return 0;
  }
  std::vector<std::string_view> known;
  for (const CodeEntry& entry : codes) known.push_back(entry.name);
  const std::string_view near = nearest(name, known);
  fmt::print(stderr, "gyre why: there is no result code \"{}\"{}\n", wanted,
             near.empty() ? "" : fmt::format("; did you mean gyre{}?", near));
  return exit_usage;
}

// ------------------------------------------------------------------------------- looking

// Whether a rank is as it was: what the two looks have in common did not change between them.
bool is_steady(const RankSnapshot& before, const RankSnapshot& after) {
  const auto same_wait = [](const WaitRecord& a, const WaitRecord& b) {
    return a.since_ns == b.since_ns && a.serial == b.serial;
  };
  return before.begun == after.begun && before.open().size() == after.open().size() &&
         std::ranges::equal(before.waits, after.waits, same_wait);
}

std::map<RankPlace, RankSnapshot> rank_states_of(const SeenProcess& process) {
  std::map<RankPlace, RankSnapshot> rank_states;
  for (const RankSnapshot& one : process.state_page.rank_states)
    rank_states.emplace(RankPlace{one.identity.communicator, one.identity.rank}, one);
  return rank_states;
}

// Those that rank states name as ranks of this host and that show no state page.
void look_at_others(Sight& sight) {
  std::set<long> known;
  for (const Sight::ProcessView& process : sight.processes) known.insert(process.facts.own_pid);
  for (const SeenRank& rank : sight.ranks) {
    // Those of a container know each other by numbers that mean others here.
    const Sight::ProcessView& teller = sight.processes[rank.process];
    if (teller.facts.own_pid != teller.facts.pid) continue;
    for (const RankPeers::Peer& peer : rank.rank_state.peers) {
      const long pid = peer.pid;
      if (rank.rank_state.hosts[peer.host].token != teller.head.host || known.contains(pid) ||
          sight.others.contains(pid))
        continue;
      sight.others[pid] = {look_at(pid), is_closed_to_us(pid)};
    }
  }
}

Sight look(Scan& scan, int sample_ms) {
  std::vector<std::map<RankPlace, RankSnapshot>> before;
  for (const SeenProcess& process : scan.processes) before.push_back(rank_states_of(process));
  std::this_thread::sleep_for(std::chrono::milliseconds(sample_ms));
  look_again(scan);
  Sight sight;
  sight.now_ns = SystemClock::read();
  for (std::size_t i = 0; i < scan.processes.size(); ++i) {
    const SeenProcess& process = scan.processes[i];
    sight.processes.push_back({process.facts, process.state_page.head});
    for (auto& [place, rank_state] : rank_states_of(process)) {
      SeenRank rank;
      rank.process = i;
      rank.thread = look_at_thread(process.facts, rank_state.caller);
      const auto known = before[i].find(place);
      rank.steady = known != before[i].end() && is_steady(known->second, rank_state);
      rank.rank_state = std::move(rank_state);
      sight.ranks.push_back(std::move(rank));
    }
  }
  look_at_others(sight);
  return sight;
}

// The jobs that were asked for.
Result<std::vector<JobView>> choose(const Sight& sight, std::vector<JobView> jobs,
                                    const std::string& target) {
  if (target.empty()) return jobs;
  const Result<std::int64_t> pid = parse_integer(target, 1, INT32_MAX);
  std::vector<long> wanted;
  if (pid.ok() && look_at(*pid).state != state_gone) wanted = descendants(*pid);
  std::erase_if(jobs, [&](const JobView& job) {
    const bool named = std::ranges::any_of(job.communicators, [&](const auto& one) {
      return one.name == target || one.label == target;
    });
    const bool has_process = std::ranges::any_of(job.ranks, [&](const auto& entry) {
      return entry.second.seen != nullptr &&
             std::ranges::count(wanted, sight.processes[entry.second.seen->process].facts.pid) > 0;
    });
    return !named && !has_process;
  });
  if (!jobs.empty()) return jobs;
  if (!wanted.empty())
    return invalid_argument(
        is_closed_to_us(*pid)
            ? fmt::format("process {} is not ours to look at: ask as its user or as root", target)
            : fmt::format("process {} ({}) shows no communicator, nor does any that it started: "
                          "they are no Gyre programs, or have made none yet",
                          target, look_at(*pid).command));
  return invalid_argument(fmt::format(
      "\"{}\" is no process, and no communicator of this host has that name or label", target));
}

// ------------------------------------------------------------------------------- flights

// What is shown of the jobs' ranks, as texts.
std::vector<std::string> flight_texts(const Sight& sight, const std::vector<JobView>& jobs) {
  std::vector<std::string> texts;
  for (const JobView& job : jobs)
    for (const auto& [place, rank] : job.ranks)
      if (rank.seen != nullptr)
        texts.push_back(
            flight_text(sight.processes[rank.seen->process].head, rank.seen->rank_state));
  return texts;
}

Status dump(const Sight& sight, const std::vector<JobView>& jobs, const std::string& pattern) {
  for (const JobView& job : jobs)
    for (const auto& [place, rank] : job.ranks) {
      if (rank.seen == nullptr) continue;
      const StatePageHead& head = sight.processes[rank.seen->process].head;
      GYRE_ASSIGN(const std::string path, write_flight_file(pattern, head, rank.seen->rank_state));
      fmt::print(stderr, "gyre why: rank {} of {}: {}\n", place.rank,
                 job.communicator(place.communicator).name, path);
    }
  return {};
}

Result<std::vector<std::string>> read_files(const std::vector<std::string>& paths) {
  std::vector<std::string> texts;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return invalid_argument(fmt::format("cannot read {}", path));
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

Status write_trace(const std::string& path, const std::vector<std::string>& texts) {
  GYRE_ASSIGN(const std::string trace, make_trace(texts));
  GYRE_ASSIGN(const FileDescriptor file, open_own_file(path));
  for (std::size_t written = 0; written < trace.size();) {
    const ssize_t count = ::write(file.get(), trace.data() + written, trace.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Status::from_errno(fmt::format("writing {}", path), errno);
    written += static_cast<std::size_t>(count);
  }
  return {};
}

Status explain(const Options& options) {
  if (!options.from.empty()) {
    if (options.trace.empty()) return invalid_argument("--from goes with --trace");
    GYRE_ASSIGN(const auto texts, read_files(options.from));
    return write_trace(options.trace, texts);
  }
  Scan scan = scan_processes();
  const Sight sight = look(scan, options.sample_ms);
  GYRE_ASSIGN(const std::vector<JobView> jobs, choose(sight, find_jobs(sight), options.target));
  if (options.json) {
    fmt::print("{}\n", to_json(sight, jobs, scan.notes).dump(2));
  } else {
    for (const std::string& note : scan.notes) fmt::print("{}\n", note);
    for (const JobView& job : jobs) fmt::print("{}", to_text(sight, job));
    if (jobs.empty()) fmt::print("no process that we may look at has a communicator\n");
  }
  if (options.dumps)
    GYRE_TRY(
        dump(sight, jobs, options.dump.empty() ? "gyre-flights-%h-%p-%r.jsonl" : options.dump));
  if (!options.trace.empty()) GYRE_TRY(write_trace(options.trace, flight_texts(sight, jobs)));
  return {};
}

}  // namespace

int why_command(int argc, char** argv) {
  CommandLine line("gyre why", description);
  Options options;
  const Option& dump_option = declare(line, options);
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  options.dumps = dump_option.count > 0;
  if (!options.code.empty()) return explain_code(options.code);
  const Status status = explain(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "gyre why: {}\n", status.message());
  return 1;
}

}  // namespace gyre::tools
