#include "tools/gyre/plan_command.h"

#include "lib/base/settings.h"
#include "lib/plan/algorithms.h"
#include "lib/plan/collective.h"
#include "lib/plan/draw.h"
#include "lib/plan/explain.h"
#include "lib/plan/print.h"
#include "lib/plan/verify.h"
#include "tools/gyre/command_line.h"
#include "tools/gyre/memory_command.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace gyre::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::int32_t max_ranks = 512;  // a ring of 512 exchanges half a million messages
constexpr std::int32_t shown_ranks = 8;  // more are shown one at a time

constexpr const char* description =
    "Shows what each rank does in a collective: the plan that the host engine and the CUDA\n"
    "kernels walk. One line is one move: verbs [from] > [chunks] > [to].\n"
    "gyre plan memory: what a model takes of each rank (gyre plan memory --help).";

struct Options {
  std::string collective = "all_reduce";
  std::string algorithm = "ring";
  std::int32_t ranks = 4;
  std::int32_t rank = -1;
  std::int32_t root = 0;
  std::vector<std::int32_t> order;
  std::int32_t hosts = 1;
  std::int32_t grain = 0;
  std::uint64_t bytes = 1U << 20;
  std::string drawing;
  bool multicast = false;
  bool verify = false;
  bool json = false;
  bool list = false;
};

void declare(CLI::App& app, Options& options) {
  CLI::AsSizeValue size(false);
  size.description("");
  app.add_option("-c,--collective", options.collective,
                 "all_reduce (default), reduce_scatter, all_gather, broadcast, reduce,\n"
                 "all_to_all, gather or scatter")
      ->type_name("NAME");
  app.add_option("-a,--algorithm", options.algorithm, "ring (default); --list names them all")
      ->type_name("NAME");
  app.add_option("-n,--ranks", options.ranks, "how many ranks; default 4")
      ->check(CLI::Range(1, max_ranks));
  app.add_option("--rank", options.rank,
                 fmt::format("show this one; default: all, or rank 0 of more than {}", shown_ranks))
      ->check(CLI::NonNegativeNumber);
  app.add_option("--root", options.root, "of broadcast, reduce, gather and scatter; default 0")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--order", options.order, "the ranks along the ring, as in 0,2,1,3")
      ->delimiter(',')
      ->type_name("RANKS");
  app.add_option("--hosts", options.hosts, "of hierarchical: as many ranks on each; default 1")
      ->check(CLI::PositiveNumber);
  app.add_option("--grain", options.grain,
                 "of halving: most chunks in a message; default 0, no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--bytes", options.bytes,
                 "of the larger buffer of a rank, for the figures of the links; default 1M")
      ->transform(size)
      ->type_name("SIZE");
  app.add_flag("--multicast", options.multicast,
               "also what crosses each rank's wires where NVLink's switch sums and spreads (NVLS)");
  app.add_flag("--verify", options.verify,
               "prove the plans of all ranks: contributions, both ends, deadlock, overwriting");
  app.add_option("--draw", options.drawing, "write a picture of all messages")
      ->type_name("FILE.svg");
  app.add_flag("--json", options.json, "print the plans for programs instead");
  app.add_flag("--list", options.list, "list the algorithms and what each can do");
}

std::string name_list(std::span<const plan::Collective> collectives) {
  std::string names;
  for (const plan::Collective collective : collectives) {
    names += (names.empty() ? "" : ", ") + std::string(plan::collective_name(collective));
  }
  return names;
}

void list_algorithms() {
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    fmt::print("{:<10} {}\n           {}\n           roundings of a sum: {}, made in {}\n\n",
               algorithm.name, name_list(algorithm.collectives), algorithm.idea,
               plan::roundings_text(algorithm.roundings),
               algorithm.order == plan::SumOrder::rank ? "rank order" : "a fixed order");
  }
}

Result<const plan::Algorithm*> find_algorithm(const std::string& name) {
  if (const plan::Algorithm* found = plan::find_algorithm(name)) return found;
  std::vector<std::string_view> known;
  for (const plan::Algorithm& algorithm : plan::algorithms()) known.push_back(algorithm.name);
  const std::string_view near = nearest(name, known);
  return invalid_argument(
      fmt::format("there is no algorithm \"{}\"{}; --list names them", name,
                  near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near)));
}

Result<plan::PlanRequest> make_request(const Options& options) {
  plan::PlanRequest request;
  GYRE_ASSIGN(request.collective, plan::parse_collective(options.collective));
  if (options.rank >= options.ranks) {
    return invalid_argument(
        fmt::format("--rank {} is not one of {} ranks", options.rank, options.ranks));
  }
  request.rank_count = options.ranks;
  request.root = options.root;
  request.order = options.order;
  request.hosts = options.hosts;
  request.grain = options.grain;
  return request;
}

bool is_shown(const Options& options, std::int32_t rank) {
  if (options.rank >= 0) return rank == options.rank;
  return rank == 0 || options.ranks <= shown_ranks;
}

const char* buffer_name(plan::Buffer buffer) {
  constexpr const char* names[] = {"none", "input", "output", "scratch"};
  return names[static_cast<int>(buffer)];
}

ordered_json to_json(const plan::LinkRange& range) {
  return {{"first", range.first}, {"count", range.count}, {"stride", range.stride}};
}

ordered_json to_json(const plan::Step& step) {
  const plan::Chunks& chunks = step.chunks;
  return {{"verbs", plan::verbs(step)},
          {"local", buffer_name(step.local)},
          {"store", buffer_name(step.store)},
          {"recv", to_json(step.recv())},
          {"send", to_json(step.send())},
          {"chunks",
           {{"base", chunks.base},
            {"first", chunks.first},
            {"stride", chunks.stride},
            {"repeat", chunks.repeat},
            {"span", chunks.span},
            {"wrap", chunks.wrap}}}};
}

ordered_json to_json(const plan::Plan& shown) {
  ordered_json lanes = ordered_json::array();
  for (const plan::LaneSteps& lane : shown.parts().lanes) {
    ordered_json links = ordered_json::array();
    for (const plan::Link& link : lane.links) {
      links.push_back({{"peer", link.peer}, {"channel", link.channel}});
    }
    ordered_json steps = ordered_json::array();
    for (const plan::Step& step : lane.steps) steps.push_back(to_json(step));
    lanes.push_back({{"links", links}, {"steps", steps}});
  }
  return {{"rank", shown.rank()}, {"lanes", lanes}};
}

Status print_json(const Options& options, const std::vector<plan::Plan>& plans) {
  const plan::Plan& first = plans.front();
  GYRE_ASSIGN(const plan::Timeline flights, plan::timeline(plans, options.bytes, 0));
  ordered_json links = ordered_json::array();
  for (const plan::LinkLoad& load : plan::link_loads(flights)) {
    links.push_back({{"from", load.from},
                     {"to", load.to},
                     {"channel", load.channel},
                     {"messages", load.messages},
                     {"bytes", load.bytes}});
  }
  ordered_json wires = ordered_json::array();
  for (const plan::WireLoad& load :
       plan::wire_loads(flights, first.rank_count(), options.multicast)) {
    wires.push_back(
        {{"sent", load.sent}, {"received", load.received}, {"switch_moves", load.switch_moves}});
  }
  ordered_json shown = ordered_json::array();
  for (const plan::Plan& one : plans) {
    if (is_shown(options, one.rank())) shown.push_back(to_json(one));
  }
  const ordered_json document = {{"algorithm", first.algorithm()},
                                 {"collective", plan::collective_name(first.collective())},
                                 {"ranks", first.rank_count()},
                                 {"root", first.root()},
                                 {"chunks", first.chunk_count()},
                                 {"scratch_chunks", first.scratch_chunks()},
                                 {"least_depth", first.min_depth()},
                                 {"direct", first.direct()},
                                 {"direct_in_place", first.direct_in_place()},
                                 {"bytes", options.bytes},
                                 {"links", links},
                                 {"multicast", options.multicast},
                                 {"wires", wires},
                                 {"plans", shown}};
  fmt::print("{}\n", document.dump(2));
  return {};
}

Status print_text(const Options& options, const plan::Algorithm& algorithm,
                  const plan::PlanRequest& request, const std::vector<plan::Plan>& plans) {
  GYRE_ASSIGN(const std::string text,
              plan::explain(algorithm, request, options.bytes, options.multicast));
  fmt::print("{}", text);
  for (const plan::Plan& shown : plans) {
    if (!is_shown(options, shown.rank())) continue;
    fmt::print("\nrank {}\n{}", shown.rank(), plan::to_text(shown));
  }
  return {};
}

Status write_drawing(const std::string& path, const std::vector<plan::Plan>& plans) {
  GYRE_ASSIGN(const std::string text, plan::draw(plans));
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file.fail()) return invalid_argument(fmt::format("cannot write {}", path));
  return {};
}

Status show(const Options& options) {
  GYRE_ASSIGN(const plan::Algorithm* algorithm, find_algorithm(options.algorithm));
  GYRE_ASSIGN(const plan::PlanRequest request, make_request(options));
  GYRE_ASSIGN(const std::vector<plan::Plan> plans, plan::build_plans(*algorithm, request));
  if (options.json) {
    GYRE_TRY(print_json(options, plans));
  } else {
    GYRE_TRY(print_text(options, *algorithm, request, plans));
  }
  if (!options.drawing.empty()) GYRE_TRY(write_drawing(options.drawing, plans));
  if (!options.verify) return {};
  GYRE_TRY(plan::verify(*algorithm, request));
  fmt::print(options.json ? stderr : stdout, "\nverified for {} ranks\n", request.rank_count);
  return {};
}

}  // namespace

int plan_command(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "memory") return memory_command(argc - 1, argv + 1);
  CLI::App app(description, "gyre plan");
  Options options;
  declare(app, options);
  if (const auto code = parse(app, argc, argv)) return *code;
  if (options.list) {
    list_algorithms();
    return 0;
  }
  const Status status = show(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "gyre plan: {}\n", status.message());
  return status.code() == Code::InvalidArgument ? exit_usage : 1;
}

}  // namespace gyre::tools
