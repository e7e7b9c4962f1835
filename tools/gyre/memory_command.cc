#include "tools/gyre/memory_command.h"

#include "lib/command_line/command_line.h"
#include "lib/gradsync/memory_need.h"

#include <fmt/core.h>

#include <cmath>
#include <string>

namespace gyre::tools {
namespace {

using namespace command_line;

constexpr const char* description =
    "Says how much memory a model takes of each rank, by stage of sharding, with AdamW. Stage 0 "
    "keeps replicas; stage 1 shards the optimizer state; stage 2 also gradients; stage 3 also "
    "parameters. Activations come on top.";

constexpr std::int64_t max_ranks = std::int64_t{1} << 30;
constexpr std::int64_t max_units = std::int64_t{1} << 30;

struct Options {
  std::string parameters = "1B";
  int ranks = 8, factor = 0, stage = -1, units = 32, prefetch = 1;
  bool is_narrow = false;
  std::uint64_t memory = 0;
};

// "350M", "1.5B": thousands, as models are named. Empty: `count` is set.
std::string read_count(const std::string& text, double& count) {
  std::size_t read = 0;
  try {
    count = std::stod(text, &read);
  } catch (const std::exception&) {
    return text + " is not a number";
  }
  const std::string unit = text.substr(read);
  const double factors[] = {1, 1e3, 1e6, 1e9, 1e12};
  const std::string names[] = {"", "K", "M", "B", "T"};
  for (int i = 0; i < 5; ++i)
    if (unit == names[i]) {
      count *= factors[i];
      return count >= 1 && std::isfinite(count) ? "" : text + " is not a number of parameters";
    }
  return "a number ends in K, M, B or T, not \"" + unit + "\"";
}

std::string size_text(double bytes) {
  const char* const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, names[unit]);
}

void declare(CommandLine& line, Options& options) {
  line.add_option("--params", options.parameters, any_text(), "COUNT",
                  "number of parameters, as in 350M or 1.5B; default 1B");
  line.add_option("-n,--ranks", options.ranks, whole(1, max_ranks), "N",
                  "how many ranks; default 8");
  line.add_option("--factor", options.factor, whole(1, max_ranks), "N",
                  "how many ranks share one model; default: all");
  line.add_option("-s,--stage", options.stage, whole(0, 3), "STAGE",
                  "show this stage alone; default: all of them");
  line.add_flag("--bf16", options.is_narrow,
                "parameters and gradients have 16 bits, beside float32 copies");
  line.add_option("--units", options.units, whole(1, max_units), "N",
                  "number of layers, which are gathered one by one; default 32");
  line.add_option("--prefetch", options.prefetch, whole(0, max_units), "N",
                  "units gathered ahead in stage 3; default 1");
  line.add_option("--memory", options.memory, size(), "SIZE",
                  "memory of each rank: says which stages fit, and how much would");
  line.add_example("gyre plan memory --params 7B -n 64 --bf16 --memory 80G");
}

void show_stage(const Options& options, gradsync::MemoryQuestion question, int stage) {
  question.stage = stage;
  const gradsync::MemoryNeed need = gradsync::memory_need(question);
  fmt::print("{:>5} {:>11} {:>11} {:>11} {:>12} {:>11} {:>9.3g}", stage, size_text(need.parameters),
             size_text(need.gradients), size_text(need.optimizer), size_text(need.whole_units),
             size_text(need.total()), need.total() / question.parameters);
  if (options.memory > 0) {
    // Every term is in proportion to the parameters.
    const auto memory = static_cast<double>(options.memory);
    fmt::print("  {:<4} {:>8.3g}B", need.total() <= memory ? "yes" : "no",
               memory / (need.total() / question.parameters) / 1e9);
  }
  fmt::print("\n");
}

std::string show(const Options& options) {
  gradsync::MemoryQuestion question{.factor = static_cast<double>(options.ranks),
                                    .is_narrow = options.is_narrow,
                                    .units = static_cast<double>(options.units),
                                    .prefetch = static_cast<double>(options.prefetch)};
  if (std::string wrong = read_count(options.parameters, question.parameters); !wrong.empty())
    return "--params: " + wrong;
  if (options.factor > 0) {
    if (options.ranks % options.factor != 0)
      return fmt::format("--factor {} does not divide {} ranks", options.factor, options.ranks);
    question.factor = options.factor;
  }
  fmt::print("{:.4g} parameters of {}, AdamW, {} ranks, {} of which share a model\n",
             question.parameters, options.is_narrow ? "16 bits" : "float32", options.ranks,
             question.factor);
  fmt::print("{:>5} {:>11} {:>11} {:>11} {:>12} {:>11} {:>9}", "stage", "parameters", "gradients",
             "optimizer", "whole units", "total", "B/param");
  fmt::print("{}\n", options.memory > 0 ? "  fits   at most" : "");
  for (int stage = 0; stage <= 3; ++stage)
    if (options.stage < 0 || options.stage == stage) show_stage(options, question, stage);
  return "";
}

}  // namespace

int memory_command(int argc, char** argv) {
  CommandLine line("gyre plan memory", description);
  Options options;
  declare(line, options);
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  const std::string wrong = show(options);
  if (wrong.empty()) return 0;
  fmt::print(stderr, "gyre plan memory: {}\n", wrong);
  return exit_usage;
}

}  // namespace gyre::tools
