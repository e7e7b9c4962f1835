// The memory that a sharded model needs on each rank, as the operating system counts it, beside the
// formula of gradsync.h; and the traffic and time of a step. Ranks are processes (gyre run -n) or
// threads (-t). Rank 0 prints a line of JSON.
#include "bench/training/job.h"
#include "lib/gradsync/memory_need.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using namespace gyre::bench;

namespace {

struct Options {
  int threads = 0, stage = 3, factor = 0, steps = 6;
  std::size_t parameters = 4 << 20, units = 32;
  std::string type = "float";

  gyreDataType_t datatype() const {
    if (type == "half") return gyreHalf;
    return type == "bfloat16" ? gyreBfloat16 : gyreFloat;
  }
  std::size_t unit_parameters() const { return parameters / units; }
};

// This process's share of the memory that it has in use: a page that k processes have mapped counts
// 1/k for each. proc(5), smaps_rollup. Not pages of files: a program's code counts for more when
// others that have it mapped end.
double process_bytes() {
  double bytes = 0;
  int found = 0;
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    for (const std::string name : {"Pss_Anon:", "Pss_Shmem:"})
      if (line.rfind(name, 0) == 0) bytes += 1024 * std::stod(line.substr(name.size())), ++found;
  if (found != 2) fail("no Pss_Anon and Pss_Shmem in /proc/self/smaps_rollup (Linux 5.4 has them)");
  return bytes;
}

// The sum over all ranks. Ranks that are threads of one process all tell of the same process.
double all_bytes(gyreComm_t comm, bool are_threads) {
  double sum = 0;
  expect(gyreBarrier(comm, nullptr), comm);
  const double mine = are_threads && rank_of(comm) > 0 ? 0 : process_bytes();
  const gyreRedOp_t op = are_threads ? gyreMax : gyreSum;
  expect(gyreAllReduce(&mine, &sum, 1, gyreDouble, op, comm, nullptr), comm);
  return sum;
}

// One pass over the units, as a training loop makes it; gradients are small numbers.
void pass(gyreGradShards_t shards, const Options& options) {
  for (std::size_t unit = 0; unit < options.units; ++unit) {
    expect(gyreGradShardsGather(shards, unit));
    expect(gyreGradShardsRelease(shards, unit));
  }
  for (std::size_t unit = options.units; unit-- > 0;) {
    void* gradient = nullptr;
    expect(gyreGradShardsGather(shards, unit));
    expect(gyreGradShardsGradient(shards, unit, &gradient));
    const std::size_t element_bytes = options.type == "float" ? 4 : 2;
    std::memset(gradient, 0x11, options.unit_parameters() * element_bytes);
    expect(gyreGradShardsReady(shards, unit));
    expect(gyreGradShardsRelease(shards, unit));
  }
}

gyreGradShards_t create(gyreComm_t comm, const Options& options) {
  std::vector<gyreGradShardTensor_t> tensors;
  for (std::size_t unit = 0; unit < options.units; ++unit)
    tensors.push_back({nullptr, options.unit_parameters(), options.datatype(), unit});
  gyreGradShardsConfig_t config = GYRE_GRAD_SHARDS_CONFIG_INITIALIZER;
  config.stage = options.stage;
  config.factor = options.factor;
  gyreGradShards_t shards = nullptr;
  expect(gyreGradShardsCreate(&shards, comm, tensors.data(), tensors.size(), &config));
  return shards;
}

void measure(gyreComm_t comm, const Options& options) {
  const int rank = rank_of(comm), n = size_of(comm);
  const double before = all_bytes(comm, options.threads > 0);
  const gyreGradShards_t shards = create(comm, options);
  std::vector<double> step_ms;
  gyreGradStepResult_t result{};
  result.size = sizeof result;
  const gyreGradStep_t step = GYRE_GRAD_STEP_INITIALIZER;
  for (int i = 0; i < options.steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pass(shards, options);
    expect(gyreGradShardsStep(shards, &step, &result));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    step_ms.push_back(took.count());
  }
  const double used = (all_bytes(comm, options.threads > 0) - before) / n;
  std::sort(step_ms.begin(), step_ms.end());
  const int factor = options.factor == 0 ? n : options.factor;
  const auto parameters = static_cast<double>(options.unit_parameters() * options.units);
  const gyre::gradsync::MemoryNeed need =
      gyre::gradsync::memory_need({.parameters = parameters,
                                   .stage = options.stage,
                                   .factor = static_cast<double>(factor),
                                   .is_narrow = options.type != "float",
                                   .units = static_cast<double>(options.units)});
  const nlohmann::ordered_json line = {{"ranks", n},
                                       {"as", options.threads > 0 ? "threads" : "processes"},
                                       {"stage", options.stage},
                                       {"factor", factor},
                                       {"type", options.type},
                                       {"parameters", parameters},
                                       {"units", options.units},
                                       {"bytes_per_parameter", used / parameters},
                                       {"formula", need.for_good() / parameters},
                                       {"whole_units", need.whole_units / parameters},
                                       {"moved_bytes", result.movedBytes},
                                       {"step_ms", step_ms[step_ms.size() / 2]},
                                       {"exposed_ms", result.exposedSeconds * 1e3}};
  if (rank == 0) std::cout << line.dump() << std::endl;
  expect(gyreGradShardsDestroy(shards));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CommandLine line(
      "shard_memory",
      "Memory of a sharded model, as the operating system counts it, and time of a step.");
  line.add_option("-t,--threads", options.threads, whole(0, 4096), "N",
                  "ranks as so many threads, instead of processes");
  line.add_option("--stage", options.stage, whole(1, 3), "STAGE", "1, 2 or 3 (default: 3)");
  line.add_option("--factor", options.factor, whole(0, 4096), "N",
                  "ranks that share a model (default: all)");
  line.add_option("--type", options.type, one_of({"float", "half", "bfloat16"}), "TYPE",
                  "of parameters: float, half or bfloat16");
  line.add_option("--parameters", options.parameters, whole(1), "N", "(default: 4194304)");
  line.add_option("--units", options.units, whole(1, 1024), "N", "equal ones (default: 32)");
  line.add_option("--steps", options.steps, whole(1, 1000), "N", "(default: 6)");
  line.add_example("shard_memory -t 4 --stage 2 --type bfloat16");
  parse(line, argc, argv);
  if (options.unit_parameters() == 0) fail("--parameters is below --units");
  const auto body = [&](gyreComm_t comm) { measure(comm, options); };
  options.threads > 0 ? run_threads(options.threads, body) : run_process(body);
  return 0;
}
