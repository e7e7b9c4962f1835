#include "tools/gyre/run_command.h"

#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "tools/gyre/launcher.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace gyre::tools {
namespace {

constexpr int exit_usage = 2;
constexpr std::int64_t max_ranks = 4096;
constexpr std::int64_t longest_timeout_s = 365LL * 24 * 3600;

constexpr const char* description =
    "Starts N ranks of a program on this machine, passes output and signals on, and ends them\n"
    "all when one fails. The exit code is that of the rank that failed first, 128 + signal for\n"
    "one that a signal killed, 124 after --timeout, 127 if there is no such program.\n"
    "Each rank gets GYRE_RANK, GYRE_SIZE, GYRE_LOCAL_RANK, GYRE_LOCAL_SIZE, GYRE_JOB_ID, and what\n"
    "torchrun sets. Standard input is empty. A second Ctrl-C kills at once.";

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

void declare(CLI::App& app, Options& options) {
  // The accepted words stand in the type; CLI11 would print them once more.
  CLI::Validator binding_word = CLI::IsMember({"core", "numa", "none"});
  binding_word.description("");
  app.add_option("-n,--np", options.ranks, "how many ranks to start")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, max_ranks));
  app.add_option("--bind", options.binding,
                 "processors of a rank: core (one each), numa (one node each) or none;\n"
                 "default: core while there are as many cores as ranks, else none")
      ->check(binding_word)
      ->type_name("core|numa|none");
  app.add_option("--log-dir", options.job.log_directory,
                 "also write each rank's output to DIR/rank-N.out and DIR/rank-N.err, which\n"
                 "begin anew; a link, a FIFO or another user's file of that name is refused")
      ->type_name("DIR");
  app.add_flag("--no-prefix", options.no_prefix, "leave out the \"[rank] \" before each line");
  app.add_option("--env", options.job.environment, "set a variable for all ranks; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--timeout", options.job.timeout_s, "end the job after so many seconds")
      ->check(CLI::Range(std::int64_t{1}, longest_timeout_s));
}

int refuse(const std::string& what) {
  fmt::print(stderr, "gyre run: {}; see gyre run --help\n", what);
  return exit_usage;
}

// An option that is not ours, before the program's name.
int refuse_option(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view near = nearest(word.substr(0, word.find('=')), known);
  return refuse(fmt::format("no option \"{}\"{}", word,
                            near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
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
  CLI::App app(description, "gyre run");
  app.footer("gyre run -n 4 ./program its arguments    (-- before the program is accepted)\n");
  app.prefix_command();
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> rest = app.remaining();
    const bool misspelt = !rest.empty() && rest.front() != "--" && rest.front().starts_with("-");
    return misspelt ? refuse_option(app, rest.front()) : refuse(error.what());
  }
  options.job.command = app.remaining();
  if (!options.job.command.empty() && options.job.command.front() == "--")
    options.job.command.erase(options.job.command.begin());
  else if (!options.job.command.empty() && options.job.command.front().starts_with("-"))
    return refuse_option(app, options.job.command.front());
  if (options.job.command.empty()) return refuse("which program?");
  options.job.ranks = static_cast<int>(options.ranks);
  options.job.binding = binding_words.at(options.binding);
  options.job.prefix = !options.no_prefix;
  if (Status status = set_up_log(); !status.ok()) return refuse(std::string(status.message()));

  const Result<int> verdict = launch(options.job);
  if (verdict.ok()) return *verdict;
  fmt::print(stderr, "gyre run: {}\n", verdict.status().full_text());
  return 1;
}

}  // namespace gyre::tools
