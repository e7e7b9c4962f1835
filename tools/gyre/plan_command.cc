#include "tools/gyre/plan_command.h"

#include "lib/base/settings.h"
#include "lib/command_line/command_line.h"
#include "lib/plan/algorithms.h"
#include "lib/plan/collective.h"
#include "lib/plan/draw.h"
#include "lib/plan/explain.h"
#include "lib/plan/print.h"
#include "lib/plan/verify.h"
#include "lib/topology/topology_file.h"
#include "tools/gyre/memory_command.h"
#include "tools/gyre/topo_search.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace gyre::tools {
namespace {

using namespace command_line;
using nlohmann::ordered_json;

constexpr std::int32_t max_ranks = 512;  // a ring of 512 exchanges half a million messages
constexpr std::int32_t shown_ranks = 8;  // more are shown one at a time
constexpr std::int32_t usual_ranks = 4;

constexpr const char* description =
    "Shows what each rank does in a collective: the plan that the host engine and the CUDA kernels "
    "walk. One line is one move: verbs [from] > [chunks] > [to].\n"
    "gyre plan memory: what a model takes of each rank (gyre plan memory --help).";

struct Options {
  std::string collective = "all_reduce";
  std::string algorithm;   // empty: the first that does the collective
  std::int32_t ranks = 0;  // 0: not given
  std::int32_t rank = -1;
  std::int32_t root = 0;
  std::vector<std::int32_t> order;
  std::string file;           // of a machine, whose rings are taken
  std::int32_t ring = -1;     // -1: not given
  std::int32_t channels = 0;  // 0: not given
  std::int32_t hosts = 1;
  std::int32_t grain = 0;
  std::uint64_t bytes = 1U << 20;
  std::string drawing;
  bool multicast = false;
  bool verify = false;
  bool json = false;
  bool list = false;
};

std::string name_list(std::span<const plan::Collective> collectives) {
  std::string names;
  for (const plan::Collective collective : collectives) {
    names += (names.empty() ? "" : ", ") + std::string(plan::collective_name(collective));
  }
  return names;
}

void declare(CommandLine& line, Options& options) {
  line.add_option("-c,--collective,collective", options.collective, any_text(), "NAME",
                  "all_reduce (default), reduce_scatter, all_gather, broadcast, reduce, "
                  "all_to_all, gather or scatter");
  line.add_option("-a,--algorithm", options.algorithm, any_text(), "NAME",
                  "default: the first of --list that does the collective");
  line.add_option("-n,--ranks", options.ranks, whole(1, max_ranks), "N",
                  fmt::format("how many ranks; default {}", usual_ranks));
  line.add_option(
      "--rank", options.rank, whole(0, max_ranks - 1), "RANK",
      fmt::format("show this rank; default: all ranks, or rank 0 of more than {}", shown_ranks));
  line.add_option("--root", options.root, whole(0, max_ranks - 1), "RANK",
                  "root of broadcast, reduce, gather and scatter; default 0");
  line.add_option("--order", options.order, whole(0, max_ranks - 1), "RANKS",
                  "the ranks along the ring, as in 0,2,1,3");
  line.add_option("--file", options.file, any_text(), "FILE",
                  "for ring and chain, instead of -n and --order: the rings over the GPUs of "
                  "this machine (gyre topo --rings), of which each has channels of its own; "
                  "--verify proves all");
  line.add_option("--ring", options.ring, whole(0, max_ranks - 1), "NUMBER",
                  "with --file: show this ring; default 0");
  line.add_option("--channels", options.channels, whole(1, topology::max_gpu_channels), "N",
                  fmt::format("with --file: the rings that a communicator of at most N channels "
                              "takes; default {}",
                              topology::max_gpu_channels));
  line.add_option("--hosts", options.hosts, whole(1, max_ranks), "N",
                  "for hierarchical and --file: number of hosts with as many ranks each; "
                  "default 1");
  line.add_option("--grain", options.grain, whole(0, max_ranks), "N",
                  "for halving: most chunks in a message; default 0, no limit");
  line.add_option("--bytes", options.bytes, size(), "SIZE",
                  "size of the larger buffer of a rank, for the figures of the links; default 1M");
  line.add_flag("--multicast", options.multicast,
                "also show what crosses each rank's wires if NVLink's switch sums and spreads "
                "(NVLS)");
  line.add_flag("--verify", options.verify,
                "prove the plans of all ranks: contributions, both ends, deadlock, overwriting");
  line.add_option("--draw", options.drawing, any_text(), "FILE.svg",
                  "write a picture of all messages");
  line.add_flag("--json", options.json, "print for programs instead");
  line.add_flag("--list", options.list,
                "list the algorithms and what each can do; with -c those for the collective");
  line.add_example("gyre plan all_reduce -a tree -n 8 --rank 0");
  line.add_example("gyre plan all_to_all -n 6 --verify --draw all_to_all.svg");
  line.add_example("gyre plan -a ring --file dgx.xml --hosts 2 --verify");
  line.add_example("gyre plan --list -c broadcast");
}

// ------------------------------------------------------------------------------- the list

const char* order_name(plan::SumOrder order) {
  return order == plan::SumOrder::rank ? "rank order" : "a fixed order";
}

Status list_algorithms(const CommandLine& line, const Options& options) {
  bool is_filtered = false;
  for (const Option& option : line.options()) {
    if (option.count == 0) continue;
    const std::string_view name = option.names.back();
    if (name == "--collective")
      is_filtered = true;
    else if (name != "--list" && name != "--json")
      return invalid_argument(
          fmt::format("--list goes with --collective and --json, not {}", name));
  }
  GYRE_ASSIGN(const plan::Collective collective, plan::parse_collective(options.collective));
  ordered_json listed = ordered_json::array();
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    if (is_filtered && !algorithm.does(collective)) continue;
    const std::string_view roundings = plan::roundings_text(algorithm.roundings);
    ordered_json names = ordered_json::array();
    for (const plan::Collective one : algorithm.collectives)
      names.push_back(plan::collective_name(one));
    listed.push_back({{"algorithm", algorithm.name},
                      {"collectives", names},
                      {"idea", algorithm.idea},
                      {"roundings", roundings},
                      {"order", order_name(algorithm.order)}});
    if (options.json) continue;
    fmt::print("{:<10} {}\n           {}\n           roundings of a sum: {}, made in {}\n\n",
               algorithm.name, name_list(algorithm.collectives), algorithm.idea, roundings,
               order_name(algorithm.order));
  }
  if (options.json) fmt::print("{}\n", listed.dump(2));
  return {};
}

// ------------------------------------------------------------------------------- the plans

Result<const plan::Algorithm*> find_algorithm(const std::string& name,
                                              plan::Collective collective) {
  std::vector<std::string_view> known;
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    if (name.empty() ? algorithm.does(collective) : algorithm.name == name) return &algorithm;
    known.push_back(algorithm.name);
  }
  const std::string_view near = nearest(name, known);
  return invalid_argument(
      fmt::format("there is no algorithm \"{}\"; {}", name,
                  near.empty() ? "--list names them" : fmt::format("did you mean {}?", near)));
}

// The plans that are asked for, and the orders of all rings that share the data.
struct RequestedPlans {
  plan::PlanRequest request;
  std::vector<std::vector<std::int32_t>> rings;
};

Result<std::vector<std::vector<std::int32_t>>> find_orders(const Options& options) {
  GYRE_ASSIGN(topology::Topology machine, topology::read_topology_file(options.file));
  GYRE_ASSIGN(const TopoSearch search,
              search_machine(std::move(machine),
                             {.hosts = options.hosts,
                              .rings = true,
                              .max_channels = options.channels > 0 ? options.channels
                                                                   : topology::max_gpu_channels}));
  std::vector<std::vector<std::int32_t>> orders;
  for (const topology::FoundChannel& ring : search.found.front().channels)
    orders.emplace_back(ring.order.begin(), ring.order.end());
  if (orders.front().size() > static_cast<std::size_t>(max_ranks))
    return invalid_argument(
        fmt::format("{} ranks; the most are {}", orders.front().size(), max_ranks));
  if (options.ring >= static_cast<std::int32_t>(orders.size()))
    return invalid_argument(
        fmt::format("--ring {} is not one of {} rings", options.ring, orders.size()));
  return orders;
}

Status ask_for_rings(const Options& options, const plan::Algorithm& algorithm,
                     RequestedPlans& asked) {
  if (options.file.empty()) {
    if (options.ring >= 0 || options.channels > 0)
      return invalid_argument("--ring and --channels go with --file, which names a machine");
    return {};
  }
  if (options.ranks > 0)
    return invalid_argument("--file goes without -n: there is a rank on each GPU of the machine");
  if (!algorithm.follows_ring || !options.order.empty())
    return invalid_argument("--file goes with the algorithms ring and chain, and not with --order");
  GYRE_ASSIGN(asked.rings, find_orders(options));
  asked.request.order = asked.rings[static_cast<std::size_t>(std::max(options.ring, 0))];
  asked.request.rank_count = static_cast<std::int32_t>(asked.request.order.size());
  asked.request.hosts = 1;
  return {};
}

Result<plan::PlanRequest> make_request(const Options& options) {
  plan::PlanRequest request;
  GYRE_ASSIGN(request.collective, plan::parse_collective(options.collective));
  request.rank_count = options.ranks > 0 ? options.ranks : usual_ranks;
  request.root = options.root;
  request.order = options.order;
  request.hosts = options.hosts;
  request.grain = options.grain;
  return request;
}

bool is_shown(const Options& options, const plan::Plan& plan) {
  if (options.rank >= 0) return plan.rank() == options.rank;
  return plan.rank() == 0 || plan.rank_count() <= shown_ranks;
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
    if (is_shown(options, one)) shown.push_back(to_json(one));
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
    if (!is_shown(options, shown)) continue;
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

Status prove(const Options& options, const plan::Algorithm& algorithm, RequestedPlans asked) {
  if (asked.rings.empty()) asked.rings.push_back(asked.request.order);
  for (const std::vector<std::int32_t>& ring : asked.rings) {
    asked.request.order = ring;
    GYRE_TRY(plan::verify(algorithm, asked.request));
  }
  const std::string rings =
      options.file.empty() ? "" : fmt::format(", along {} rings", asked.rings.size());
  fmt::print(options.json ? stderr : stdout, "\nverified for {} ranks{}\n",
             asked.request.rank_count, rings);
  return {};
}

Status show(const Options& options) {
  RequestedPlans asked;
  GYRE_ASSIGN(asked.request, make_request(options));
  const plan::PlanRequest& request = asked.request;
  GYRE_ASSIGN(const plan::Algorithm* algorithm,
              find_algorithm(options.algorithm, request.collective));
  GYRE_TRY(ask_for_rings(options, *algorithm, asked));
  if (options.rank >= request.rank_count)
    return invalid_argument(
        fmt::format("--rank {} is not one of {} ranks", options.rank, request.rank_count));
  GYRE_ASSIGN(const std::vector<plan::Plan> plans, plan::build_plans(*algorithm, request));
  if (options.json) {
    GYRE_TRY(print_json(options, plans));
  } else {
    GYRE_TRY(print_text(options, *algorithm, request, plans));
  }
  if (!options.drawing.empty()) GYRE_TRY(write_drawing(options.drawing, plans));
  return options.verify ? prove(options, *algorithm, std::move(asked)) : Status();
}

}  // namespace

int plan_command(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "memory") return memory_command(argc - 1, argv + 1);
  CommandLine line("gyre plan", description);
  Options options;
  declare(line, options);
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  const Status status = options.list ? list_algorithms(line, options) : show(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "gyre plan: {}\n", status.message());
  return status.code() == Code::InvalidArgument ? exit_usage : 1;
}

}  // namespace gyre::tools
