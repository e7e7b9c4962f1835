// How long the searches for rings and trees take: search_bench [OPTIONS] FILE..., where the files
// are topology files. tests/topologies/machines.py FOLDER writes those of the described machines.
#include "lib/topology/channels.h"
#include "lib/topology/topology_file.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace gyre::bench {
namespace {

using namespace topology;

// The share of the bound that was reached stands beside the time.
void search(benchmark::State& state, const Cluster& cluster, ChannelPattern pattern) {
  double share = 0, channels = 0;
  for ([[maybe_unused]] auto _ : state) {
    const Result<FoundChannels> found =
        pattern == ChannelPattern::ring ? find_rings(cluster) : find_trees(cluster);
    if (!found.ok()) {
      state.SkipWithError(std::string(found.status().message()).c_str());
      return;
    }
    share = found->gigabytes_per_s / found->bound_gigabytes_per_s;
    channels = static_cast<double>(found->channels.size());
  }
  state.counters["channels"] = channels;
  state.counters["of_bound"] = share;
}

Status add_machine(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return invalid_argument(fmt::format("{} cannot be read", file));
  GYRE_ASSIGN(const Topology machine, read_topology(std::move(text).str()));
  for (const int hosts : {1, 4})
    for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree}) {
      const Cluster cluster = equal_hosts(machine, hosts, usual_members(machine));
      benchmark::RegisterBenchmark(
          fmt::format("{}/hosts:{}/{}s", std::filesystem::path(file).stem().native(), hosts,
                      pattern_name(pattern))
              .c_str(),
          [=](benchmark::State& state) { search(state, cluster, pattern); })
          ->Unit(benchmark::kMillisecond);
    }
  return {};
}

}  // namespace
}  // namespace gyre::bench

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  for (int i = 1; i < count; ++i)
    if (const gyre::Status added = gyre::bench::add_machine(arguments[i]); !added.ok()) {
      std::fprintf(stderr, "search_bench: %s: %s\n", arguments[i],
                   std::string(added.message()).c_str());
      return 1;
    }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
