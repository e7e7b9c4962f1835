// How a communicator settles on its GPUs: the ranks exchange facts about them and decide alike.
#include "lib/base/log.h"
#include "lib/comm/device_backend.h"
#include "lib/comm/join_info.h"
#include "lib/comm/rank_levels.h"
#include "lib/device/device_exchange.h"
#include "lib/links/transport_registry.h"
#include "lib/loaded/cuda_rest.h"
#include "transports/p2p/survey.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <utility>

namespace gyre::comm {
namespace {

bool shares_by_mps(const exec::CudaDevice& device) {
  return p2p::runs_mps(device.driver(), device.ordinal(), std::getenv("CUDA_MPS_PIPE_DIRECTORY"));
}

// The first rank on a GPU tells for all; without MPS a process warns once.
void tell_of_sharing(const exec::CudaDevice& device, std::span<const GpuInfo> notes,
                     std::span<const std::uint32_t> processes_of, int own) {
  std::set<std::uint32_t> processes;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    if (notes[rank].uuid != device.uuid()) continue;
    if (processes.empty() && rank != static_cast<std::size_t>(own)) return;
    processes.insert(processes_of[rank]);
  }
  if (processes.size() < 2) return;
  if (shares_by_mps(device))
    return log_info(Subsystem::init, "{} processes share {} ({}) by MPS: kernels run side by side",
                    processes.size(), device.name(), device.uuid());
  static std::atomic<bool> told = false;
  if (told.exchange(true)) return;
  log_warn(
      "{} processes share {} ({}) without MPS: the GPU runs their kernels in turns, so kernels "
      "that wait for each other are slow. Start MPS before the processes (nvidia-cuda-mps-control "
      "-d), or make the ranks threads of one process",
      processes.size(), device.name(), device.uuid());
}

// The same on all ranks.
bool is_any_relayed(const std::vector<p2p::Gpu>& gpus) {
  for (std::size_t high = 1; high < gpus.size(); ++high)
    for (std::size_t low = 0; low < high; ++low)
      if (find_route(gpus[low], gpus[high]).way == p2p::GpuRoute::relay) return true;
  return false;
}

}  // namespace

// To the GPUs of this process's ranks: who opens a link later asks the driver for nothing then. Who
// reaches one of them not at all says so when it needs it.
void DeviceBackend::reach_siblings(const std::vector<p2p::PairRoute>& ways,
                                   const std::vector<p2p::Gpu>& gpus) const {
  std::set<std::string> wanted;
  for (std::size_t rank = 0; rank < ways.size(); ++rank)
    if (ways[rank].way == p2p::GpuRoute::pointer && gpus[rank].uuid != device_.uuid())
      wanted.insert(gpus[rank].uuid);
  int devices = 0;
  (void)device_.driver().device_count(&devices);
  for (int ordinal = 0; ordinal < devices && !wanted.empty(); ++ordinal) {
    loaded::CuDevice there = 0;
    if (device_.driver().device_get(&there, ordinal) != loaded::cu::success ||
        wanted.erase(loaded::find_uuid(device_.driver(), there)) == 0)
      continue;
    const auto other = services_.device(ordinal);
    if (other.ok()) (void)device_.reach(**other);
  }
}

Result<control::MessageBytes> DeviceBackend::join_info() {
  GYRE_ASSIGN(const bool allowed, is_transport_allowed("p2p", state_.options.settings));
  const p2p::Limits limits{!allowed, *p2p::path_named(state_.options.settings.p2p_level)};
  const auto nvml = services_.nvml();
  if (!nvml.ok())
    log_info(Subsystem::graph,
             "paths between GPUs are read from the PCI bus, which does not show NVLink, and GPUs "
             "that CUDA_VISIBLE_DEVICES hides are not known: {}",
             nvml.status().message());
  const p2p::OwnGpu own{device_.ordinal(), device_.uuid(), device_.bus_id()};
  GYRE_ASSIGN(const std::uint64_t free_bytes, device_.free_bytes());
  const GpuInfo note{.uuid = device_.uuid(),
                     .blocks = device_.max_blocks(),
                     .connections = device_connections(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"),
                                                       shares_by_mps(device_)),
                     .channels = state_.options.max_channels,
                     .min_channels = state_.options.min_channels,
                     .free_mib = static_cast<std::uint32_t>(free_bytes >> 20),
                     .capability = device_.capability(),
                     .bus_id = device_.bus_id(),
                     .held = claimed_.others,
                     .toward = survey(device_.driver(), nvml.ok() ? *nvml : nullptr, own, limits)};
  GYRE_ASSIGN(const std::string machine, note_machine(nvml.ok() ? *nvml : nullptr));
  return host_->join_info(encode(note), machine);
}

Result<std::vector<GpuInfo>> DeviceBackend::device_notes() const {
  std::vector<GpuInfo> notes;
  for (const control::MessageBytes& rank_message : state_.membership->roster().notes) {
    auto note = read_gpu_info(read_join_info(rank_message).device);
    const int rank = static_cast<int>(notes.size());
    if (!note)
      return Status(Code::RemoteError,
                    fmt::format("rank {} sent a malformed description of its device", rank))
          .blame({rank});
    notes.push_back(std::move(*note));
  }
  return notes;
}

std::vector<p2p::Gpu> DeviceBackend::find_gpus(const std::vector<GpuInfo>& notes) const {
  std::vector<p2p::Gpu> gpus;
  for (int rank = 0; rank < state_.size; ++rank) {
    const GpuInfo& note = notes[static_cast<std::size_t>(rank)];
    gpus.push_back({state_.identity_of(rank).host, state_.identity_of(rank).process, note.uuid,
                    note.bus_id, note.toward, note.capability});
  }
  return gpus;
}

// To each rank, in the log as well.
std::vector<p2p::PairRoute> DeviceBackend::find_ways(const std::vector<p2p::Gpu>& gpus) const {
  std::vector<p2p::PairRoute> ways;
  for (int rank = 0; rank < state_.size; ++rank) {
    const p2p::Gpu& there = gpus[static_cast<std::size_t>(rank)];
    ways.push_back(find_route(gpus[static_cast<std::size_t>(state_.rank)], there));
    const p2p::PairRoute& way = ways.back();
    if (rank != state_.rank)
      log_info(Subsystem::graph, "rank {} to rank {} on {} ({}): {}, path {}{}{}", state_.rank,
               rank, there.bus_id, there.uuid, p2p::route_name(way.way), path_shown(way),
               way.reason.empty() ? "" : ": ", way.reason);
    if (way.way == p2p::GpuRoute::relay)
      log_info(Subsystem::init,
               "rank {} reaches the GPU of rank {} through memory of the host, which is slower: {}",
               state_.rank, rank, way.reason);
  }
  return ways;
}

// From now on no estimate. Communicators that are made at one time do not see each other's part in
// other processes, and so may have taken too much.
Status DeviceBackend::hold_share(const std::vector<GpuInfo>& notes, const DeviceShare& share) {
  const auto ranks = static_cast<std::uint32_t>(
      std::ranges::count(notes, device_.uuid(), [](const GpuInfo& note) { return note.uuid; }));
  claimed_.claim->settle(ranks, ranks * share.blocks);
  std::uint32_t held = 0;
  for (const DeviceHolding& one : claimed_.claim->all()) held += one.blocks;
  if (held > device_.max_blocks())
    return invalid_usage(fmt::format(
        "communicators that were made at the same time do not fit on {}: with this one, {}; make "
        "them one after another, or with fewer channels (GYRE_MAX_CTAS or config.maxCTAs)",
        device_.uuid(), shown(claimed_.claim->all(), device_.max_blocks())));
  const std::uint32_t connections = notes[static_cast<std::size_t>(state_.rank)].connections;
  const DeviceHoldings::LocalUse here = claimed_.claim->here();
  if (here.is_first && here.max_ranks > 1 && here.ranks > connections)
    log_warn(
        "{} ranks of {} communicators of this process are on {}, where {} streams run side by "
        "side: ranks that use a stream for each communicator may wait for each other's kernels; "
        "let each use one stream, or set CUDA_DEVICE_MAX_CONNECTIONS to {} before CUDA begins",
        here.ranks, here.communicators, device_.uuid(), connections, std::min(here.ranks, 32U));
  return {};
}

DeviceEnvironment DeviceBackend::surroundings(const std::vector<p2p::Gpu>& gpus,
                                              std::vector<p2p::PairRoute> ways,
                                              const DeviceDemand& demand) {
  bool other_gpus_here = false;
  for (std::size_t rank = 0; rank < ways.size(); ++rank)
    other_gpus_here |=
        ways[rank].way == p2p::GpuRoute::pointer && gpus[rank].uuid != device_.uuid();
  return {.membership = *state_.membership,
          .tickets = tickets_,
          .rank = state_.rank,
          .size = state_.size,
          .other_gpus_here = other_gpus_here,
          .allocations = &services_.memory,
          .ways = std::move(ways),
          .levels = on_gpus(host_->levels(), !demand.relayed),
          .demand = demand,
          .links = &host_->links(),
          .progress = &services_.progress,
          .lasting = host_->lasting(),
          .why_nic_is_far =
              [nics = host_->gpu_nics()](std::string_view port) { return nics->why_too_far(port); },
          .timeout_ns = state_.options.timeout_ns,
          .liveness_ns = state_.liveness_ns(),
          .reproducible = state_.options.reproducible,
          .whole_lines = p2p::keep_lines_whole(gpus),
          .reclaim = [&watch = services_.watch](
                         std::shared_ptr<void> gone) { watch.reclaim(std::move(gone)); }};
}

// It takes memory when no kernel of this process is on its way; if one always is, it does so all
// the same, as that one may wait for this thread. And it is over when all ranks of this process
// have what they ask the driver for: from the next kernel on, which may be of any communicator,
// that would have to wait. What others wait for is sent before: their kernels may be those that
// this rank's wait for.
Result<bool> DeviceBackend::settle() {
  if (!std::exchange(has_asked_, true)) {
    GYRE_TRY(host_->settle().status());
    GYRE_TRY(ask_for_machines());
  }
  if (is_settled_) {
    GYRE_ASSIGN(const bool knows_rings, follow_rings());
    return knows_rings && resources_->links().are_pools_open();
  }
  loaded::CudaRest& rest = *device_.driver().rest;
  const std::int64_t now_ns = system_clock.now_ns();
  if (rest_until_ns_ == 0) rest_until_ns_ = now_ns + loaded::CudaRest::patience_ns;
  const loaded::CudaRest::Stillness still = rest.try_rest();
  if (!still.is_held()) rest.ask_for_rest();
  if (!still.is_held() && now_ns < rest_until_ns_) return false;
  if (!still.is_held()) rest.note_vain_wait();
  is_settled_ = true;
  GYRE_TRY(settle_now());
  // A search takes its time, and others wait for the end of this rest.
  return machines_ == nullptr && resources_->links().are_pools_open();
}

Status DeviceBackend::settle_now() {
  const control::Roster& roster = state_.membership->roster();
  GYRE_ASSIGN(const std::vector<GpuInfo> notes, device_notes());
  const std::vector<p2p::Gpu> gpus = find_gpus(notes);
  const DeviceDemand demand{static_cast<std::uint64_t>(state_.options.settings.slot_bytes),
                            is_any_relayed(gpus)};
  GYRE_ASSIGN(const DeviceShare share, share_devices(notes, roster.process_of_rank, demand));
  const Neighbours beside = find_neighbours(notes, roster.process_of_rank, state_.rank);
  GYRE_TRY(check_launch_blocking(std::getenv("CUDA_LAUNCH_BLOCKING"), beside));
  shares_gpu_.store(beside.on_gpu > 1, std::memory_order_relaxed);
  GYRE_TRY(hold_share(notes, share));
  tell_of_sharing(device_, notes, roster.process_of_rank, state_.rank);
  std::vector<p2p::PairRoute> ways = find_ways(gpus);
  reach_siblings(ways, gpus);
  GYRE_ASSIGN(resources_, DeviceResources::create(state_.options.device, share,
                                                  surroundings(gpus, std::move(ways), demand)));
  resources_->executor().keep(claimed_.claim);  // as graphs keep the executor
  GYRE_TRY(resources_->links().open_pools(
      {claimed_.claim, static_cast<std::uint32_t>(beside.in_process)}));
  exchange_ = std::make_unique<DeviceExchange>(resources_->links(), *state_.membership,
                                               resources_->executor(), state_.rank, state_.size,
                                               share.blocks, [this] { note_launch(); });
  GYRE_TRY(services_.watch.add(*this));
  const std::lock_guard lock(mutex_);
  regions_ready_ = resources_->regions();
  resources_ready_.store(resources_.get(), std::memory_order_release);
  for (auto& [handle, registered] : registered_) GYRE_TRY(meet_buffer(registered));
  return {};
}

}  // namespace gyre::comm
