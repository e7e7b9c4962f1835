// What a communicator does only on a CUDA device: it settles there, binds calls and hears from the
// watch.
#include "lib/base/log.h"
#include "lib/comm/communicator.h"
#include "lib/comm/joining_note.h"
#include "lib/comm/process.h"
#include "lib/device/device_exchange.h"
#include "lib/device/device_memory.h"
#include "lib/device/device_streams.h"
#include "transports/p2p/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace gyre::comm {
namespace {

const SystemClock clock;

// Watches that sleep look within 100 ms.
constexpr std::int64_t departure_most_ns = ns_per_s;

bool shares_by_mps(const exec::CudaDevice& device) {
  return p2p::runs_mps(device.driver(), device.ordinal(), std::getenv("CUDA_MPS_PIPE_DIRECTORY"));
}

// The first rank on a GPU tells for all.
void tell_of_sharing(const exec::CudaDevice& device, std::span<const DeviceNote> notes,
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
  log_warn(
      "{} processes share {} ({}) without MPS: the GPU runs their kernels in turns, so that those "
      "that wait for each other are slow. Start MPS before the processes (nvidia-cuda-mps-control "
      "-d), or make the ranks threads of one process",
      processes.size(), device.name(), device.uuid());
}

// To the GPUs of this process's ranks: who opens a link later asks the driver for nothing then. Who
// reaches one of them not at all says so when it needs it.
void reach_siblings(const exec::CudaDevice& device, const std::vector<p2p::Between>& ways,
                    const std::vector<p2p::Gpu>& gpus) {
  std::set<std::string> wanted;
  for (std::size_t rank = 0; rank < ways.size(); ++rank)
    if (ways[rank].way == p2p::Way::pointer && gpus[rank].uuid != device.uuid())
      wanted.insert(gpus[rank].uuid);
  int devices = 0;
  (void)device.driver().device_count(&devices);
  for (int ordinal = 0; ordinal < devices && !wanted.empty(); ++ordinal) {
    loaded::CuDevice there = 0;
    if (device.driver().device_get(&there, ordinal) != loaded::cu::success ||
        wanted.erase(loaded::find_uuid(device.driver(), there)) == 0)
      continue;
    const auto other = process().cuda_device(ordinal);
    if (other.ok()) (void)device.reach(**other);
  }
}

// The same on all ranks.
bool is_any_relayed(const std::vector<p2p::Gpu>& gpus) {
  for (std::size_t high = 1; high < gpus.size(); ++high)
    for (std::size_t low = 0; low < high; ++low)
      if (find_way(gpus[low], gpus[high]).way == p2p::Way::relay) return true;
  return false;
}

}  // namespace

Result<std::string> Communicator::device_note() const {
  if (!on_device()) return std::string();
  const exec::CudaDevice& device = *options_.device;
  const p2p::Limits limits{options_.settings.p2p_disable,
                           *p2p::path_named(options_.settings.p2p_level)};
  const auto nvml = process().nvml();
  if (!nvml.ok())
    log_info(Subsystem::graph,
             "what lies between GPUs is read off the PCI bus, where NVLink does not show, and GPUs "
             "that CUDA_VISIBLE_DEVICES hides are not known: {}",
             nvml.status().message());
  const p2p::OwnGpu own{device.ordinal(), device.uuid(), device.bus_id()};
  GYRE_ASSIGN(const std::uint64_t free_bytes, device.free_bytes());
  return encode(DeviceNote{
      .uuid = device.uuid(),
      .blocks = device.blocks_most(),
      .connections =
          device_connections(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), shares_by_mps(device)),
      .channels = options_.channels_most,
      .least_channels = options_.channels_least,
      .free_mib = static_cast<std::uint32_t>(free_bytes >> 20),
      .capability = device.capability(),
      .bus_id = device.bus_id(),
      .held = claimed_.others,
      .toward = survey(device.driver(), nvml.ok() ? *nvml : nullptr, own, limits)});
}

Result<std::vector<DeviceNote>> Communicator::device_notes() const {
  std::vector<DeviceNote> notes;
  for (const control::Letter& letter : membership_->roster().notes) {
    auto note = read_device_note(read_joining_note(letter).device);
    const int rank = static_cast<int>(notes.size());
    if (!note)
      return Status(Code::RemoteError,
                    fmt::format("rank {} says nothing sensible of its device", rank))
          .blame({rank});
    notes.push_back(std::move(*note));
  }
  return notes;
}

std::vector<p2p::Gpu> Communicator::find_gpus(const std::vector<DeviceNote>& notes) const {
  std::vector<p2p::Gpu> gpus;
  for (int rank = 0; rank < size_; ++rank) {
    const DeviceNote& note = notes[static_cast<std::size_t>(rank)];
    gpus.push_back({identity_of(rank).host, identity_of(rank).process, note.uuid, note.bus_id,
                    note.toward, note.capability});
  }
  return gpus;
}

// To each rank, in the log as well.
std::vector<p2p::Between> Communicator::find_ways(const std::vector<p2p::Gpu>& gpus) const {
  std::vector<p2p::Between> ways;
  for (int rank = 0; rank < size_; ++rank) {
    const p2p::Gpu& there = gpus[static_cast<std::size_t>(rank)];
    ways.push_back(find_way(gpus[static_cast<std::size_t>(rank_)], there));
    const p2p::Between& way = ways.back();
    if (rank != rank_)
      log_info(Subsystem::graph, "rank {} to rank {} on {} ({}): {}, path {}{}{}", rank_, rank,
               there.bus_id, there.uuid, p2p::way_name(way.way), path_shown(way),
               way.reason.empty() ? "" : ": ", way.reason);
    if (way.way == p2p::Way::relay)
      log_info(Subsystem::init,
               "rank {} reaches the GPU of rank {} through memory of the host, which is slower: {}",
               rank_, rank, way.reason);
  }
  return ways;
}

// From now on no estimate. Communicators that are made at one time do not see each other's part in
// other processes, and so may have taken too much.
Status Communicator::hold_share(const std::vector<DeviceNote>& notes, const DeviceShare& share) {
  const exec::CudaDevice& device = *options_.device;
  const auto ranks = static_cast<std::uint32_t>(
      std::ranges::count(notes, device.uuid(), [](const DeviceNote& note) { return note.uuid; }));
  claimed_.claim->settle(ranks, ranks * share.blocks);
  std::uint32_t held = 0;
  for (const DeviceHolding& one : claimed_.claim->all()) held += one.blocks;
  if (held > device.blocks_most())
    return invalid_usage(fmt::format(
        "communicators that were made at one time do not fit {}: with this one, {}; make them one "
        "after another, or with fewer channels (GYRE_MAX_CTAS or config.maxCTAs)",
        device.uuid(), shown(claimed_.claim->all(), device.blocks_most())));
  const std::uint32_t connections = notes[static_cast<std::size_t>(rank_)].connections;
  const DeviceHoldings::Here here = claimed_.claim->here();
  if (here.is_first && here.ranks_most > 1 && here.ranks > connections)
    log_warn(
        "{} ranks of {} communicators of this process are on {}, where {} streams run side by "
        "side: ranks that use a stream for each communicator may wait for each other's kernels; "
        "let each use one stream, or set CUDA_DEVICE_MAX_CONNECTIONS to {} before CUDA begins",
        here.ranks, here.communicators, device.uuid(), connections, std::min(here.ranks, 32U));
  return {};
}

Status Communicator::settle_on_device() {
  const control::Roster& roster = membership_->roster();
  GYRE_ASSIGN(const std::vector<DeviceNote> notes, device_notes());
  const std::vector<p2p::Gpu> gpus = find_gpus(notes);
  const DeviceDemand demand{static_cast<std::uint64_t>(options_.settings.slot_bytes),
                            is_any_relayed(gpus)};
  GYRE_ASSIGN(const DeviceShare share, share_devices(notes, roster.process_of_rank, demand));
  const Beside beside = find_beside(notes, roster.process_of_rank, rank_);
  GYRE_TRY(check_launch_blocking(std::getenv("CUDA_LAUNCH_BLOCKING"), beside));
  shares_gpu_.store(beside.on_gpu > 1, std::memory_order_relaxed);
  GYRE_TRY(hold_share(notes, share));
  tell_of_sharing(*options_.device, notes, roster.process_of_rank, rank_);
  const std::vector<p2p::Between> ways = find_ways(gpus);
  reach_siblings(*options_.device, ways, gpus);
  bool other_gpus_here = false;
  for (std::size_t rank = 0; rank < ways.size(); ++rank)
    other_gpus_here |=
        ways[rank].way == p2p::Way::pointer && gpus[rank].uuid != options_.device->uuid();
  GYRE_ASSIGN(device_, DeviceSide::create(options_.device, share,
                                          {.membership = *membership_,
                                           .tickets = *tickets_,
                                           .rank = rank_,
                                           .size = size_,
                                           .one_process = roster.processes.size() == 1,
                                           .other_gpus_here = other_gpus_here,
                                           .allocations = &process().device_memory,
                                           .ways = ways,
                                           .demand = demand,
                                           .links = links_.get(),
                                           .progress = &process().device_progress,
                                           .timeout_ns = options_.timeout_ns,
                                           .reproducible = options_.reproducible,
                                           .whole_lines = p2p::keep_lines_whole(gpus),
                                           .bury = [](std::shared_ptr<void> gone) {
                                             process().device_watch.bury(std::move(gone));
                                           }}));
  device_->executor().keep(claimed_.claim);  // as graphs keep the executor
  GYRE_TRY(
      device_->links().open_pools({claimed_.claim, static_cast<std::uint32_t>(beside.in_process)}));
  exchange_ = std::make_unique<DeviceExchange>(device_->links(), *membership_, device_->executor(),
                                               rank_, size_, share.blocks);
  GYRE_TRY(process().device_watch.add(*this));
  const std::lock_guard lock(mutex_);
  regions_ready_ = device_->regions();
  device_ready_ = device_.get();
  for (auto& [handle, registered] : registered_) GYRE_TRY(meet_buffer(registered));
  return {};
}

const trust::ProcessIdentity& Communicator::identity_of(int rank) const {
  const control::Roster& roster = membership_->roster();
  return roster.processes[roster.process_of_rank[static_cast<std::size_t>(rank)]];
}

Status Communicator::check_known_memory(std::string_view name, const void* buffer,
                                        std::uint64_t bytes) const {
  if (!on_device()) return check_host_memory(*options_.driver, name, buffer, bytes);
  GYRE_ASSIGN(const loaded::CudaPointer where,
              check_device_memory(*options_.device, name, buffer, bytes));
  if (bytes == 0 || !lends_registered_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(mutex_);
  return regions_ready_->check(name, buffer, where);
}

Result<exec::StreamState> Communicator::check_stream(const void* stream) const {
  if (process().streams.pin(reinterpret_cast<std::uintptr_t>(stream)))
    return invalid_argument(
        "a host stream (gyreStreamCreate) was given to a communicator of a CUDA "
        "device: it takes a cudaStream_t");
  GYRE_ASSIGN(const exec::StreamState state, check_device_stream(*options_.device, stream));
  GYRE_TRY(take_stream(state.stream));
  return state;
}

// Refuses what would hang (lib/device/device_streams.h). A call counts from here on, as two ranks
// may be asking at one time.
Status Communicator::take_stream(loaded::CuStream stream) const {
  if (stream == loaded::cu::thread_stream && !options_.blocking)
    return invalid_argument(
        "cudaStreamPerThread was given to a non-blocking communicator, whose kernels a thread of "
        "Gyre's launches, where it is another stream: give it a stream that cudaStreamCreate made");
  if (!shares_gpu_.load(std::memory_order_relaxed)) return {};
  GYRE_ASSIGN(DeviceStreamUse use, ask_stream(*options_.driver, stream));
  {
    const std::lock_guard lock(mutex_);
    if (device_ready_ == nullptr) return {};
    use.is_running = [executor = device_ready_->weak_executor()] {
      const auto alive = executor.lock();
      return alive != nullptr && alive->is_running();
    };
  }
  return claimed_.claim->use_stream(rank_, std::move(use));
}

Status Communicator::bind_on_device(const Request& request, const CallRecord& record) {
  const std::uint64_t history = board_ != nullptr ? board_->history() : 0;
  GYRE_TRY(device_->bind(request, current_->plan, choice_, choice_bytes_, history));
  bound_for_ = record;
  if (request.tables != nullptr) bound_for_.sequence = 0;
  return {};
}

// mutex_ is held. Before the ranks have joined, it is only kept.
Status Communicator::meet_buffer(Registered& registered) {
  if (regions_ready_ == nullptr) return {};
  GYRE_ASSIGN(registered.lent, regions_ready_->enlist(registered.buffer, registered.bytes));
  // The word that tells other threads of it is under the lock that they take next.
  if (registered.lent != nullptr) lends_registered_.store(true, std::memory_order_relaxed);
  process().device_watch.launched();
  return {};
}

// Peers let go of it by their watches, when their kernels rest; those may wait for the very call
// that this rank makes next, so that it cannot wait for long.
Status Communicator::await_departure(DeviceRegions& regions, RegisteredMemory& memory) {
  const std::int64_t until_ns = clock.now_ns() + departure_most_ns;
  std::atomic<std::uint32_t> never{0};
  Departure seen;
  Until left(never, [&] {
    process().device_watch.launched();
    seen = regions.departure(memory);
    return seen.over || !seen.keepers.empty() || !broken().ok() || clock.now_ns() >= until_ns;
  });
  Resumable* const all[] = {&left};
  run(all, clock, {.spins = 0, .yields = 16});
  if (seen.over) return {};
  return why_not_free(memory.bytes, seen, broken(), rank_);
}

void Communicator::note_launch() {
  device_->note_launch();
  if (shares_gpu_.load(std::memory_order_relaxed)) claimed_.claim->note_launch(rank_);
  process().device_watch.launched();
}

bool Communicator::look() {
  if (membership_->failed()) (void)fail(membership_->failure());
  DeviceSide::Seen seen = device_->look();
  const std::int64_t now_ns = clock.now_ns();
  const bool asks = seen.asks >= 0 && board_ != nullptr;
  if (!seen.why.ok() && (asks || seen.is_symptom)) {
    if (asks) ask(seen.asks);
    device_suspicion_.begin(std::move(seen.why), now_ns);
  } else if (!seen.why.ok()) {
    (void)fail(std::move(seen.why));
  }
  if (device_suspicion_.held() && membership_->failed()) (void)fail(membership_->failure());
  if (device_suspicion_.held() && (device_suspicion_.ripe(now_ns) || !broken().ok())) {
    (void)fail(device_suspicion_.take());
    device_suspicion_.clear();
  }
  // A graph may bring a kernel at any time.
  if (membership_->failed()) (void)fail(membership_->failure());
  if (!broken().ok()) device_->abort();
  if (!broken().ok() && !seen.running) claimed_.claim->give_back();
  if (!seen.running) {
    device_asked_ns_ = device_begun_ns_ = 0;
    ledger_.end_wait(WaitLane::kernels);
    return device_suspicion_.held();
  }
  watch_kernel(seen, now_ns);
  return true;
}

bool Communicator::has_given_up() const {
  const std::lock_guard lock(mutex_);
  return device_ready_ != nullptr && device_ready_->executor().has_given_up();
}

// One that runs for long: what it waits for is shown, and whoever may keep it waiting is asked.
void Communicator::watch_kernel(const DeviceSide::Seen& seen, std::int64_t now_ns) {
  constexpr std::int64_t asks_after_ns = 250 * ns_per_ms;
  if (device_asked_ns_ == 0) device_asked_ns_ = now_ns;
  if (device_begun_ns_ == 0 || seen.starts != device_starts_) {
    device_starts_ = seen.starts;
    device_begun_ns_ = now_ns;
    ledger_.end_wait(WaitLane::kernels);
  }
  const std::int64_t for_ns = now_ns - device_begun_ns_;
  if (for_ns > asks_after_ns) {
    WaitRecord wait;
    wait.phase = WaitPhase::moving;
    wait.what = seen.waits.what;
    wait.peer = seen.waits.peer;
    ledger_.tell_wait(WaitLane::kernels, wait);
  }
  if (seen.waits.what == BlockedOn::stream && options_.timeout_ns > 0 &&
      for_ns > options_.timeout_ns)
    (void)fail(
        Status(Code::Timeout,
               fmt::format("a kernel of rank {} has not begun for {} s: what is before it "
                           "on its stream has not ended, or other kernels hold device {}{}",
                           rank_, options_.timeout_ns / ns_per_s, device_->device().ordinal(),
                           shares_gpu_.load(std::memory_order_relaxed)
                               ? ", or its stream shares a queue of the hardware with one of "
                                 "another rank of this process, whose kernel waits for this one: "
                                 "set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA begins"
                               : ""))
            .blame({rank_}));
  if (board_ == nullptr || now_ns - device_asked_ns_ < asks_after_ns) return;
  device_asked_ns_ = now_ns;
  for (int peer = 0; peer < size_; ++peer) ask(peer);
}

}  // namespace gyre::comm
