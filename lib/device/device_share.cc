#include "lib/device/device_share.h"

#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/device/device_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace gyre::comm {
namespace {

// Lanes of the widest plan that the tuner takes: a double tree, up and down. So the least blocks.
constexpr std::uint32_t max_lanes = 4;
// As many as a framework makes for one model: world, data, tensor, pipeline, expert, ...
constexpr std::size_t communicators_expected = 8;
constexpr std::uint32_t max_connections = 32;
// Beside links: plans, counters and scratch of a few.
constexpr std::uint64_t spare_bytes = 4 << 20;

// One GPU, as the notes of the ranks on it tell together.
struct SharedGpu {
  std::uint32_t ranks = 0;
  std::uint32_t total = UINT32_MAX;  // blocks at one time
  std::uint64_t free_bytes = UINT64_MAX;
  std::map<std::string, DeviceHolding> held;  // by communicator

  void add(const GpuInfo& note) {
    ++ranks;
    total = std::min(total, note.blocks);
    free_bytes = std::min(free_bytes, std::uint64_t{note.free_mib} << 20);
    for (const DeviceHolding& one : note.held) {
      DeviceHolding& known = held[one.communicator];
      known = {one.communicator, std::max(known.ranks, one.ranks),
               std::max(known.blocks, one.blocks)};
    }
  }
  std::vector<DeviceHolding> holdings() const {
    std::vector<DeviceHolding> all;
    for (const auto& [name, one] : held) all.push_back(one);
    return all;
  }
};

std::uint32_t sum_of(const std::vector<DeviceHolding>& holdings) {
  return std::accumulate(
      holdings.begin(), holdings.end(), 0U,
      [](std::uint32_t sum, const DeviceHolding& one) { return sum + one.blocks; });
}

std::uint32_t left_of(std::uint32_t total, const std::vector<DeviceHolding>& holdings) {
  return total - std::min(total, sum_of(holdings));
}

// For each of `ranks`, by default; not less than it needs, and perhaps more than is left.
std::uint32_t default_blocks(std::uint32_t total, const std::vector<DeviceHolding>& others,
                             std::uint32_t ranks) {
  const std::size_t to_come =
      communicators_expected - std::min(communicators_expected, others.size() + 1);
  const std::uint32_t reserve =
      std::min(static_cast<std::uint32_t>(to_come) * ranks * max_lanes, total / 2);
  const std::uint32_t left = left_of(total, others);
  return std::max((left - std::min(left, reserve)) / 2 / ranks, max_lanes);
}

Status refuse(const std::string& uuid, const SharedGpu& gpu) {
  const std::vector<DeviceHolding> held = gpu.holdings();
  const std::uint32_t left = left_of(gpu.total, held);
  const std::string all = fmt::format(
      "{} ranks of a communicator on {} do not fit: kernels may have {} blocks at one time there",
      gpu.ranks, uuid, gpu.total);
  if (held.empty())
    return invalid_usage(
        fmt::format("{}, {} for each rank, and a rank needs {}; put at most {} "
                    "ranks on it",
                    all, left / gpu.ranks, max_lanes, left / max_lanes));
  return invalid_usage(
      fmt::format("{}, of which {} are left, and a rank needs {}: {}; destroy communicators that "
                  "are no longer used, make earlier ones with fewer channels (GYRE_MAX_CTAS or "
                  "config.maxCTAs: four blocks a rank for each), or put fewer ranks on the GPU",
                  all, left, max_lanes, shown(held, gpu.total)));
}

// With fewer channels, if need be.
Status fit_memory(const std::string& uuid, const SharedGpu& gpu, std::size_t size,
                  const DeviceDemand& demand, DeviceShare& share) {
  const auto needed = [&] {
    return gpu.ranks * device_bytes(share, demand, static_cast<int>(size), size);
  };
  for (; needed() > gpu.free_bytes && share.channels > 1; --share.channels) {
  }
  share.blocks = std::min(share.blocks, share.channels * max_lanes);
  if (needed() <= gpu.free_bytes) return {};
  return invalid_usage(fmt::format(
      "{} ranks of a communicator on {} need {} MiB of its memory for links to {} ranks, even with "
      "one channel, and {} MiB are free; free some, lower GYRE_BUFFSIZE, or put fewer ranks on it",
      gpu.ranks, uuid, divide_up(needed(), std::uint64_t{1} << 20), size, gpu.free_bytes >> 20));
}

Status check_connections(std::span<const GpuInfo> notes, std::span<const std::uint32_t> processes) {
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> beside;
  for (std::size_t rank = 0; rank < notes.size(); ++rank)
    ++beside[{processes[rank], notes[rank].uuid}];
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    const std::uint32_t ranks = beside[{processes[rank], notes[rank].uuid}];
    if (ranks > notes[rank].connections)
      return invalid_usage(fmt::format(
          "{} ranks of one process on {} would wait for each other's kernels: only {} streams run "
          "side by side (by default 8, and 2 under MPS); set CUDA_DEVICE_MAX_CONNECTIONS to {} or "
          "more before CUDA begins (at most {})",
          ranks, notes[rank].uuid, notes[rank].connections, ranks, max_connections));
  }
  return {};
}

}  // namespace

std::string shown(const std::vector<DeviceHolding>& holdings, std::uint32_t total) {
  std::string each;
  for (const DeviceHolding& one : holdings)
    each += fmt::format("{}{}: {} ranks, {}", each.empty() ? "" : "; ", one.communicator, one.ranks,
                        one.blocks);
  return fmt::format("{} communicators hold {} of {} blocks ({})", holdings.size(),
                     sum_of(holdings), total, each);
}

// With one rank there, as it likes; with several, the halves together are no more.
std::uint32_t estimate_holding(std::uint32_t total, const std::vector<DeviceHolding>& others) {
  return std::min(default_blocks(total, others, 1), left_of(total, others));
}

Neighbours find_neighbours(std::span<const GpuInfo> notes, std::span<const std::uint32_t> processes,
                           int rank) {
  const auto own = static_cast<std::size_t>(rank);
  Neighbours beside;
  for (std::size_t other = 0; other < notes.size(); ++other) {
    if (processes[other] != processes[own]) continue;
    ++beside.in_process;
    beside.on_gpu += notes[other].uuid == notes[own].uuid ? 1 : 0;
  }
  return beside;
}

// A launch waits for its kernel then, which waits for the launch of another rank: for ever, if that
// one is kept out by the same context, or is this thread's.
Status check_launch_blocking(const char* variable, const Neighbours& beside) {
  if (variable == nullptr || std::string_view(variable) != "1") return {};
  if (beside.on_gpu > 1)
    return invalid_usage(
        fmt::format("CUDA_LAUNCH_BLOCKING=1 makes each launch wait for its kernel, and {} ranks of "
                    "this process on one GPU would wait for each other's launches for ever: unset "
                    "it, or give each rank a process",
                    beside.on_gpu));
  if (beside.in_process > 1)
    log_warn(
        "CUDA_LAUNCH_BLOCKING=1 makes each launch wait for its kernel: give each of the {} ranks "
        "of this process its own thread, and put only one of them in a group, or they wait for "
        "ever",
        beside.in_process);
  return {};
}

exec::DeviceShape device_shape(const DeviceShare& share, const DeviceDemand& demand) {
  exec::DeviceShape shape;
  shape.channels = share.channels;
  if (demand.slot_bytes > 0) shape.slot_bytes = round_up(demand.slot_bytes, 128);
  // Nobody sends lines where some cannot.
  if (demand.relayed) shape.ll_shift = shape.ll128_shift = 2;
  return shape;
}

std::uint64_t device_bytes(const DeviceShare& share, const DeviceDemand& demand, int size,
                           std::uint64_t links) {
  const exec::DeviceShape shape = device_shape(share, demand);
  const std::uint32_t pair_channels =
      std::min(DeviceExchange::channels_for(share.blocks, size), share.channels);
  const std::uint64_t pair_bytes = pair_channels * shape.channel_bytes();
  return spare_bytes + links * (shape.link_bytes() + pair_bytes);
}

Result<DeviceShare> share_devices(std::span<const GpuInfo> notes,
                                  std::span<const std::uint32_t> processes,
                                  const DeviceDemand& demand) {
  GYRE_TRY(check_connections(notes, processes));
  std::map<std::string, SharedGpu> gpus;
  std::uint32_t channels = cuda::max_channels, min_channels = 1;
  for (const GpuInfo& note : notes) {
    gpus[note.uuid].add(note);
    channels = std::min(channels, note.channels);
    min_channels = std::max(min_channels, note.min_channels);
  }
  const std::uint32_t wanted = std::min(min_channels, channels) * max_lanes;
  DeviceShare share{channels * max_lanes, channels};
  for (const auto& [uuid, gpu] : gpus) {
    const std::vector<DeviceHolding> held = gpu.holdings();
    const std::uint32_t most = left_of(gpu.total, held) / gpu.ranks;
    if (most < max_lanes) return refuse(uuid, gpu);
    share.blocks = std::min(
        {share.blocks, most, std::max(default_blocks(gpu.total, held, gpu.ranks), wanted)});
  }
  share.channels = std::min(share.channels, share.blocks);
  for (const auto& [uuid, gpu] : gpus) GYRE_TRY(fit_memory(uuid, gpu, notes.size(), demand, share));
  return share;
}

}  // namespace gyre::comm
