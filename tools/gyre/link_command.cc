#include "tools/gyre/link_command.h"

#include "lib/base/caught.h"
#include "lib/base/settings.h"
#include "lib/command_line/command_line.h"
#include "lib/rendezvous/rendezvous.h"
#include "tools/gyre/launcher.h"
#include "tools/gyre/link_job.h"
#include "tools/gyre/link_report.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace gyre::tools {
namespace {

using namespace command_line;

constexpr int exit_named = 3;
constexpr std::int64_t max_ranks = 512;
constexpr double max_seconds = 24 * 3600;

constexpr const char* description =
    "Before a job: measures each link that its all-reduces would use (latency, bandwidth, and "
    "whether every byte arrives as it was sent), and names the links that are slow, dead, or "
    "change bytes. Start it as the job: by the same launcher, with the same GYRE_ variables. The "
    "links are those between the ranks' host memory.";
constexpr const char* exit_codes =
    "Exit code of rank 0: 0 if all links are as expected; 3 if some are named; 1 if nothing could "
    "be measured; 2 if the command line is wrong.\n\n";

struct Options {
  LinkQuestion question;
  std::int64_t ranks = 0;  // to start here; 0: a launcher has started them
  std::uint64_t seed = 1;
  std::string json, picture;
};

void declare(CommandLine& line, Options& options) {
  line.add_option("-n,--np", options.ranks, whole(1, max_ranks), "N",
                  "start N ranks on this host; without it a launcher starts them");
  line.add_flag("--all-pairs", options.question.all_pairs,
                "measure every pair of ranks, and not only the links of the job's plans");
  line.add_option("--slow-below", options.question.slow_below, number(0.01, 1), "SHARE",
                  "a link is slow below this share of its expectation: the median of the links of "
                  "its kind, or the machine's figure if that is higher")
      .default_text = "0.5";
  line.add_option("--seconds", options.question.seconds, number(1, max_seconds), "SECONDS",
                  "take no longer; default: 60, or 3 for each round if that is more");
  line.add_option("--seed", options.seed, whole(0), "NUMBER", "of the bytes that are sent")
      .default_text = "1";
  line.add_option("--json", options.json, any_text(), "FILE", "write a report for programs");
  line.add_option("--svg", options.picture, any_text(), "FILE",
                  "write a heat map: the row sends, the column receives");
  line.add_example("gyre link -n 4");
  line.add_example("gyre run -n 8 gyre link --all-pairs");
  line.add_example("srun -N 4 --ntasks-per-node 2 gyre link --json links.json --svg links.svg");
  line.set_footer(std::string(exit_codes) + link_json_schema);
}

int refuse(std::string_view what, int code = exit_usage) {
  fmt::print(stderr, "gyre link: {}\n", what);
  return code;
}

// Ranks of this host, with the same words but for -n.
int start_ranks(const Options& options) {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return refuse("cannot find its own program: " + failed.message(), 1);
  LaunchedJob job;
  job.ranks = static_cast<int>(options.ranks);
  job.prefix = false;
  job.command = {program, "link", fmt::format("--slow-below={}", options.question.slow_below),
                 fmt::format("--seed={}", options.seed)};
  if (options.question.all_pairs) job.command.emplace_back("--all-pairs");
  if (options.question.seconds > 0)
    job.command.push_back(fmt::format("--seconds={}", options.question.seconds));
  if (!options.json.empty()) job.command.push_back("--json=" + options.json);
  if (!options.picture.empty()) job.command.push_back("--svg=" + options.picture);
  const Result<int> verdict = launch(job);
  if (verdict.ok()) return *verdict;
  return refuse(verdict.status().full_text(), 1);
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file.fail()) return invalid_argument(fmt::format("cannot write {}", path));
  return {};
}

// On a terminal each line takes the place of the one before.
class Progress {
 public:
  ~Progress() {
    if (on_terminal_ && has_spoken_) fmt::print(stderr, "\r\x1b[K");
  }
  void say(const std::string& line) {
    fmt::print(stderr, "{}gyre link: {}{}", on_terminal_ ? "\r\x1b[K" : "", line,
               on_terminal_ ? "" : "\n");
    (void)std::fflush(stderr);
    has_spoken_ = true;
  }

 private:
  const bool on_terminal_ = isatty(STDERR_FILENO) == 1;
  bool has_spoken_ = false;
};

Result<int> be_a_rank(const Options& options) {
  std::optional<LinkAnswer> answer;
  {
    Progress progress;
    GYRE_ASSIGN(answer, measure_links(options.question,
                                      [&](const std::string& line) { progress.say(line); }));
  }
  if (!answer) return 0;  // rank 0 says it
  fmt::print("{}", link_text(answer->facts, answer->verdict));
  (void)std::fflush(stdout);
  if (!options.json.empty())
    GYRE_TRY(write_file(options.json, link_json(answer->facts, answer->verdict)));
  if (!options.picture.empty())
    GYRE_TRY(write_file(options.picture, link_svg(answer->facts, answer->verdict)));
  return answer->verdict.names_any() ? exit_named : 0;
}

// How many ranks a launcher has started.
Result<int> launched_ranks() {
  std::vector<std::string> warnings;
  GYRE_ASSIGN(const Settings settings, read_settings(&warnings));
  GYRE_ASSIGN(
      const rendezvous::LaunchPlace place,
      rendezvous::read_launch_place(settings, rendezvous::process_environment(), &warnings));
  return place.size;
}

}  // namespace

int link_command(int argc, char** argv) {
  Options options;
  CommandLine line("gyre link", description);
  declare(line, options);
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  options.question.seed = options.seed;
  const Result<int> launched = launched_ranks();
  if (options.ranks > 0) {
    if (launched.ok() && *launched > 1)
      return refuse("-n starts ranks, but a launcher has started this one already: leave -n out");
    return options.ranks == 1 ? refuse("one rank has no links; give -n 2 or more")
                              : start_ranks(options);
  }
  if (!launched.ok())
    return refuse(fmt::format("{}. Or let gyre link -n 4 start four ranks on this host",
                              launched.status().message()));
  if (*launched < 2)
    return refuse(
        "one rank has no links; start several, as in gyre link -n 4, or by the job's launcher");
  // Links that fail are in the report; so are the reasons.
  (void)setenv("GYRE_DEBUG", "NONE", 0);
  Result<int> code = 1;
  const Status done = caught([&]() -> Status {
    code = be_a_rank(options);
    return code.status();
  });
  return done.ok() ? *code : refuse(done.full_text(), 1);
}

}  // namespace gyre::tools
