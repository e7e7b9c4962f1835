#include "tools/gyre/run_command.h"

#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "lib/command_line/command_line.h"
#include "tools/gyre/launcher.h"

#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace gyre::tools {
namespace {

using namespace command_line;

constexpr std::int64_t max_ranks = 4096;
constexpr std::int64_t longest_timeout_s = 365LL * 24 * 3600;

constexpr const char* description =
    "Starts N ranks of a program on this machine. It passes output and signals on, and ends all "
    "ranks when one fails. Standard input is empty. A second Ctrl-C kills at once.\n"
    "Each rank gets GYRE_RANK, GYRE_SIZE, GYRE_LOCAL_RANK, GYRE_LOCAL_SIZE, GYRE_JOB_ID, and what "
    "torchrun sets. Several ranks also get OMP_NUM_THREADS=1 if it is unset.";
constexpr const char* exit_codes =
    "Exit code: that of the rank that failed first; 128 + signal if a signal killed that rank; 124 "
    "after --timeout; 127 if there is no such program; 2 if the command line is wrong.";

const std::map<std::string, BindingChoice> binding_words = {{"", BindingChoice::automatic},
                                                            {"core", BindingChoice::core},
                                                            {"numa", BindingChoice::numa},
                                                            {"none", BindingChoice::none}};

struct Options {
  LaunchedJob job;
  std::int64_t ranks = 0;
  std::string binding;
  bool no_prefix = false;
};

void declare(CommandLine& line, Options& options) {
  line.add_option("-n,--np", options.ranks, whole(1, max_ranks), "N", "how many ranks to start")
      .is_required = true;
  line.add_option("--bind", options.binding, one_of({"core", "numa", "none"}), "WORD",
                  "processors of a rank: core (one each), numa (one node each) or none; default: "
                  "core while there are as many cores as ranks, else none");
  line.add_option("--log-dir", options.job.log_directory, any_text(), "DIR",
                  "also write each rank's output to DIR/rank-N.out and DIR/rank-N.err, which begin "
                  "anew; a link, a FIFO or another user's file of that name is refused");
  line.add_flag("--no-prefix", options.no_prefix, "leave out the \"[rank] \" before each line");
  line.add_option("--env", options.job.environment, any_text(), "NAME=VALUE",
                  "set a variable for all ranks; may be given again");
  line.add_option("--timeout", options.job.timeout_s, whole(1, longest_timeout_s), "SECONDS",
                  "end the job after this time");
  line.add_rest(options.job.command, "PROGRAM [ARGUMENTS]");
  line.add_example("gyre run -n 4 ./program --its --arguments");
  line.add_example("gyre run -n 2 --env GYRE_DEBUG=INFO --timeout 60 all_reduce_perf -b 8 -e 64M");
  line.set_footer(exit_codes);
}

int refuse(std::string_view what) {
  fmt::print(stderr, "gyre run: {}\n", what);
  return exit_usage;
}

Status set_up_log() {
  std::vector<std::string> warnings;
  GYRE_ASSIGN(const Settings settings, read_settings(&warnings));
  const std::map<std::string, LogLevel> levels = {{"NONE", LogLevel::none},
                                                  {"VERSION", LogLevel::version},
                                                  {"WARN", LogLevel::warn},
                                                  {"INFO", LogLevel::info},
                                                  {"TRACE", LogLevel::trace}};
  // The ranks write to GYRE_DEBUG_FILE; the launcher speaks to whoever started it.
  GYRE_ASSIGN(const SubsystemMask subsystems, parse_subsystems(settings.debug_subsystems));
  GYRE_TRY(configure_log(levels.at(settings.debug), "", subsystems));
  for (const std::string& warning : warnings) log_warn("{}", warning);
  return {};
}

}  // namespace

int run_command(int argc, char** argv) {
  CommandLine line("gyre run", description);
  Options options;
  declare(line, options);
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  if (options.job.command.empty())
    return refuse(
        fmt::format("name the program to start, as in gyre run -n {} ./program", options.ranks));
  options.job.ranks = static_cast<int>(options.ranks);
  options.job.binding = binding_words.at(options.binding);
  options.job.prefix = !options.no_prefix;
  if (const Status status = set_up_log(); !status.ok()) return refuse(status.message());

  const Result<int> verdict = launch(options.job);
  if (verdict.ok()) return *verdict;
  fmt::print(stderr, "gyre run: {}\n", verdict.status().full_text());
  return 1;
}

}  // namespace gyre::tools
