// gyre: one program for the tasks around a job. Each subcommand has its own file; this one only
// picks the subcommand.
#include "lib/base/settings.h"
#include "lib/command_line/command_line.h"
#include "tools/gyre/link_command.h"
#include "tools/gyre/plan_command.h"
#include "tools/gyre/run_command.h"
#include "tools/gyre/settings_command.h"
#include "tools/gyre/topo_command.h"
#include "tools/gyre/why_command.h"

#include <fmt/core.h>

#include <cstdio>
#include <string_view>
#include <vector>

namespace {

struct Subcommand {
  std::string_view name;
  int (*run)(int argc, char** argv);  // argv[0] is the subcommand's name
  std::string_view meaning;
};

constexpr Subcommand subcommands[] = {
    {"run", gyre::tools::run_command, "start the ranks of a job on this machine"},
    {"plan", gyre::tools::plan_command, "show, prove and draw the plans of the collectives"},
    {"why", gyre::tools::why_command, "who waits for whom in a job, and for which rank in the end"},
    {"link", gyre::tools::link_command,
     "before a job: measure its links, and name the slow and the corrupting ones"},
    {"topo", gyre::tools::topo_command, "this host: its parts, links, ports and paths"},
    {"settings", gyre::tools::settings_command,
     "every GYRE_ variable, its default and its meaning"},
};

void print_help(std::FILE* stream) {
  fmt::print(stream, "Usage: gyre SUBCOMMAND [OPTIONS]\n\n");
  for (const Subcommand& subcommand : subcommands)
    fmt::print(stream, "  {:<9} {}\n", subcommand.name, subcommand.meaning);
  fmt::print(stream, "\n  -h, --help   this text; gyre SUBCOMMAND --help says more\n");
  fmt::print(stream, "  --version    the version\n");
  fmt::print(stream, "\nExamples:\n  gyre run -n 4 ./program\n  gyre plan all_reduce\n");
}

int refuse(std::string_view word) {
  std::vector<std::string_view> known = {"--help", "--version", "help"};
  for (const Subcommand& subcommand : subcommands) known.push_back(subcommand.name);
  const std::string_view near = gyre::nearest(word, known);
  fmt::print(stderr, "gyre: there is no subcommand \"{}\"; {}\n", word,
             near.empty() ? "gyre --help lists them" : fmt::format("did you mean {}?", near));
  return gyre::command_line::exit_usage;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    print_help(stderr);
    return gyre::command_line::exit_usage;
  }
  const std::string_view word = argv[1];
  for (const Subcommand& subcommand : subcommands)
    if (word == subcommand.name) return subcommand.run(argc - 1, argv + 1);
  if (word == "-h" || word == "--help" || word == "help") {
    print_help(stdout);
    return 0;
  }
  if (word == "--version") {
    fmt::print("gyre {}\n", GYRE_VERSION_TEXT);
    return 0;
  }
  return refuse(word);
}
