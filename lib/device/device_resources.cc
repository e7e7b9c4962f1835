#include "lib/device/device_resources.h"

#include "lib/base/log.h"
#include "lib/base/wait.h"
#include "lib/loaded/cuda_rest.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::comm {

using cuda::DeviceProtocol;

namespace {

// Below this a second channel costs more in flags than it gains. Not measured yet.
constexpr std::uint64_t min_channel_bytes = 64 << 10;
constexpr std::size_t max_kept = 64;  // calls in one kernel

DeviceProtocol device_protocol(plan::Protocol protocol) {
  if (protocol == plan::Protocol::line128) return DeviceProtocol::ll128;
  return protocol == plan::Protocol::line ? DeviceProtocol::ll : DeviceProtocol::simple;
}

std::shared_ptr<DeviceRelays> make_relays(const DeviceEnvironment& around,
                                          exec::CudaExecutor& executor) {
  if (!around.demand.relayed) return nullptr;
  auto made = std::make_shared<DeviceRelays>(*around.links, executor.device(), executor.shape(),
                                             *around.progress, around.lasting,
                                             around.why_nic_is_far, around.liveness_ns);
  made->belong_to(executor);
  return made;
}

// Peers in other processes that may lend and be lent to.
std::vector<int> peers_by_ipc(const DeviceEnvironment& around) {
  std::vector<int> peers;
  for (int rank = 0; rank < around.size && !around.demand.relayed; ++rank)
    if (around.ways[static_cast<std::size_t>(rank)].way == p2p::GpuRoute::ipc)
      peers.push_back(rank);
  return peers;
}

}  // namespace

Result<std::unique_ptr<DeviceResources>> DeviceResources::create(
    std::shared_ptr<const exec::CudaDevice> device, const DeviceShare& share,
    DeviceEnvironment around) {
  const exec::DeviceShape shape = device_shape(share, around.demand);
  // Relayed links lie with the host.
  const auto links = static_cast<std::uint64_t>(std::ranges::count_if(
      around.ways, [](const p2p::PairRoute& way) { return way.way != p2p::GpuRoute::relay; }));
  const std::vector<int> foreign = peers_by_ipc(around);
  const std::uint64_t reserved = device_bytes(share, around.demand, around.size, links) +
                                 DeviceRegions::device_bytes(foreign.size());
  const int rank = around.rank;
  // Of uneven blocks, for each channel: where each rank's lie in the input and in the output.
  const std::uint64_t tables_bytes =
      2 * shape.channels * static_cast<std::uint64_t>(around.size) * sizeof(plan::Extent);
  GYRE_ASSIGN(auto executor,
              exec::CudaExecutor::create(std::move(device), shape, reserved, around.timeout_ns,
                                         std::move(around.reclaim), tables_bytes));
  std::shared_ptr<DeviceRegions> regions;
  if (!foreign.empty()) {
    GYRE_ASSIGN(regions, DeviceRegions::create(rank, foreign, around.membership, around.tickets,
                                               *around.allocations, *executor));
  }
  std::unique_ptr<DeviceResources> made(
      new DeviceResources(share, std::move(around), std::move(executor)));
  made->regions_ = std::move(regions);
  GYRE_ASSIGN(made->barrier_byte_, made->executor_->allocate(1, "the barrier"));
  log_info(Subsystem::init,
           "rank {}: {} blocks of device {}, up to {} channels, {} MiB of its memory", rank,
           share.blocks, made->device().ordinal(), share.channels, reserved >> 20);
  return made;
}

DeviceResources::DeviceResources(const DeviceShare& share, DeviceEnvironment around,
                                 std::shared_ptr<exec::CudaExecutor> executor)
    : rank_(around.rank),
      share_(share),
      timeout_ns_(around.timeout_ns),
      allocations_(around.allocations),
      other_gpus_here_(around.other_gpus_here),
      executor_(std::move(executor)),
      links_(around.rank, std::move(around.ways), make_relays(around, *executor_),
             around.membership, around.tickets, *executor_),
      bindings_(executor_->shape().channels),
      stripes_(executor_->shape().channels) {
  tuning_.ranks = around.size;
  tuning_.levels = std::move(around.levels);
  tuning_.device = true;
  tuning_.whole_lines = around.whole_lines;
  tuning_.reproducible = around.reproducible;
  tuning_.slot_bytes = executor_->shape().slot_bytes;
  tuning_.line_count = 1U << executor_->shape().ll_shift;
}

// Graphs may still run what they hold of it, so it is not told to abort if it is at rest. A kernel
// that does not leave, or stands behind others on its stream, keeps its memory until it has ended.
DeviceResources::~DeviceResources() {
  if (regions_ != nullptr) regions_->close();
  if (links_.pools() != nullptr) links_.pools()->close();
  if (settle(0)) return;
  executor_->abort();
  if (settle(2 * ns_per_s)) return;
  log_warn(
      "a kernel on device {} did not end within 2 s of the abort: its memory stays in use until it "
      "ends",
      device().ordinal());
  device().driver().rest->later([held = executor_] {});
}

void DeviceResources::leave(bool in_peace) {
  if (links_.relays() != nullptr) links_.relays()->leave_after_communicator(in_peace);
}

bool DeviceResources::settle(std::int64_t max_ns) {
  return look_until(system_clock, without_bell, max_ns, [this] {
    const auto running = executor_->running();
    return !running.ok() || !*running;
  });
}

bool DeviceResources::fits(const plan::Plan& plan, plan::Protocol protocol) const {
  return executor_->shape().max_piece(device_protocol(protocol), plan.message_chunks(),
                                      plan.min_depth()) >= 64;
}

Result<const exec::DevicePlan*> DeviceResources::bind_plan(std::span<const plan::Plan> by_channel) {
  return executor_->bind(by_channel, [this](plan::Link link) { return link_with_regions(link); });
}

exec::DeviceLink DeviceResources::link_with_regions(plan::Link link) const {
  exec::DeviceLink found = links_.link(link);
  if (regions_ != nullptr) found.regions = regions_->table(link.peer);
  found.lends |= found.regions != nullptr;
  return found;
}

std::uint32_t DeviceResources::channels_for(std::span<const plan::Plan> by_channel,
                                            std::uint64_t bytes) const {
  const std::uint32_t most =
      std::min(executor_->shape().channels, share_.blocks / by_channel.front().max_lanes());
  // Counts that ranks know alone are no ground to choose on.
  const std::uint64_t wanted = bytes == tune::CallSize::private_bytes
                                   ? most
                                   : std::max<std::uint64_t>(1, bytes / min_channel_bytes);
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, most));
  // Each ring carries as much, if there are enough for all.
  const auto rings = static_cast<std::uint32_t>(by_channel.size());
  return count > rings ? count - count % rings : count;
}

Status DeviceResources::bind(const Request& request, std::span<const plan::Plan> by_channel,
                             const tune::Choice& choice, std::uint64_t bytes,
                             std::uint64_t history) {
  const plan::Plan& plan = by_channel.front();
  const std::uint32_t channels = channels_for(by_channel, bytes);
  // Other ranks may have begun: no refusal, after which the communicator would go on.
  if (channels == 0)
    return Status(Code::SystemError,
                  fmt::format("{} has {} lanes, and this rank has {} blocks of device {}: "
                              "leave it out with GYRE_ALGO=^{}",
                              plan.algorithm(), plan.max_lanes(), share_.blocks, device().ordinal(),
                              plan.algorithm()));
  const DeviceProtocol protocol = device_protocol(choice.protocol);
  std::uint64_t piece =
      executor_->shape().max_piece(protocol, plan.message_chunks(), plan.min_depth());
  if (protocol == DeviceProtocol::simple)
    piece = std::min(piece, tune::piece_bytes(tuning_, choice.protocol, bytes, plan.chunk_count()));
  has_tables_ = false;
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    bindings_[channel].bind(request, by_channel[channel % by_channel.size()],
                            piece * plan.message_chunks(), {channel, channels});
    stripes_[channel] = bindings_[channel].geometry();
    has_tables_ |= stripes_[channel].input.table != nullptr;
    has_tables_ |= stripes_[channel].output.table != nullptr;
  }
  call_ = {};
  call_.protocol = protocol;
  call_.stripes = std::span(stripes_).first(channels);
  call_.input_bytes = bindings_[0].input_bytes();
  call_.output_bytes = bindings_[0].output_bytes();
  call_.type = request.type;
  call_.op = request.op;
  call_.divisor = request.op == ReduceOp::avg ? static_cast<std::uint32_t>(plan.rank_count()) : 1;
  // Only with equal blocks does a rank know where the peer's block for it lies.
  call_.pairs = request.collective == plan::Collective::all_to_all;
  may_lend_ = choice.protocol == plan::Protocol::direct && plan.direct() && tuning_.maps_all() &&
              (!call_.pairs || request.tables == nullptr);
  may_lend_in_place_ = may_lend_ && plan.direct_in_place();
  call_.rank = static_cast<std::uint32_t>(plan.rank());
  call_.signature = hash_with(signature_of(request), history);
  return {};
}

bool DeviceResources::PendingBatch::takes(const exec::DevicePlan& other, loaded::CuStream on,
                                          const exec::DeviceCall& call) const {
  return plan == &other && stream == on &&
         std::ranges::all_of(calls, [&](const exec::DeviceCall& before) {
           return exec::CudaExecutor::can_follow(before, call);
         });
}

void DeviceResources::PendingBatch::add(const exec::DeviceCall& call) {
  stripes.emplace_back(call.stripes.begin(), call.stripes.end());
  calls.push_back(call);
  calls.back().stripes = stripes.back();
}

Status DeviceResources::launch_pending() {
  if (pending_batch_.calls.empty()) return {};
  Status launched =
      executor_->launch(*pending_batch_.plan, pending_batch_.calls, pending_batch_.stream);
  pending_batch_.clear();
  return launched;
}

cuda::DevicePlace DeviceResources::place_of(CachedPlace& known, const void* memory,
                                            std::uint64_t bytes) {
  const std::uint64_t now = regions_->changes();
  if (known.memory != memory || known.bytes != bytes || known.as_of != now)
    known = {memory, bytes, now, regions_->find(memory, bytes)};
  return known.place;
}

// cuCtxEnablePeerAccess opens what cuMemAlloc gave, and nothing else: other memory says itself whom
// it is open to, and a kernel that is not among them would fault.
Result<bool> DeviceResources::is_reached(const void* memory, std::uint64_t bytes) {
  if (bytes == 0) return true;
  const auto given = allocations_->find(memory, bytes);
  if (given != nullptr) return given->shareable == nullptr || given->shareable->is_everybodys();
  GYRE_ASSIGN(const loaded::CudaPointer found, find_pointer(device().driver(), memory));
  if (!found.on_device || found.managed || found.legacy) return true;
  if (!std::exchange(told_of_unreached_, true))
    log_info(Subsystem::alloc,
             "rank {}: {} bytes at {} are memory of {}, which kernels of the other GPUs of this "
             "process do not reach: calls copy such buffers through slots; memory from cudaMalloc "
             "or gyreMemAlloc is lent",
             rank_, bytes, memory,
             found.of_pool ? "a pool (cudaMallocAsync)" : "the driver's virtual memory (cuMemMap)");
  return false;
}

// Each rank for its own buffers, whatever the others do.
Status DeviceResources::decide_lending(const Request& request) {
  call_.lends = request.in_place ? may_lend_in_place_ : may_lend_;
  if (!call_.lends) return {};
  if (other_gpus_here_) {
    GYRE_ASSIGN(const bool input, is_reached(call_.input, call_.input_bytes));
    GYRE_ASSIGN(const bool output, is_reached(call_.output, call_.output_bytes));
    call_.lends = input && output;
  }
  if (!call_.lends || regions_ == nullptr) return {};
  call_.input_place = place_of(input_place_, call_.input, call_.input_bytes);
  call_.output_place = place_of(output_place_, call_.output, call_.output_bytes);
  return {};
}

Result<bool> DeviceResources::launch(const Request& request, const exec::DevicePlan& plan,
                                     bool more) {
  const auto stream = static_cast<loaded::CuStream>(const_cast<void*>(request.stream));
  call_.input = request.input;
  call_.output = request.output;
  call_.scalar = request.pre_scalar;
  GYRE_TRY(decide_lending(request));
  GYRE_ASSIGN(const bool room, executor_->has_room(has_tables_ || !pending_batch_.calls.empty()));
  if (!room) return false;
  const std::size_t max_calls = std::min(
      max_kept, executor_->max_tasks() /
                    (call_.stripes.size() * static_cast<std::size_t>(plan.plan->lane_count())));
  if (!pending_batch_.calls.empty() &&
      (pending_batch_.calls.size() >= max_calls || !pending_batch_.takes(plan, stream, call_))) {
    GYRE_TRY(launch_pending());
    if (has_tables_) return launch(request, plan, more);  // there was room for one
  }
  if (has_tables_ || (pending_batch_.calls.empty() && !more)) {
    GYRE_TRY(request.asked != nullptr ? executor_->launch(plan, {&call_, 1}, *request.asked)
                                      : executor_->launch(plan, {&call_, 1}, stream));
    return true;
  }
  pending_batch_.plan = &plan;
  pending_batch_.stream = stream;
  pending_batch_.add(call_);
  if (!more) GYRE_TRY(launch_pending());
  return true;
}

DeviceResources::KernelStatus DeviceResources::look() {
  KernelStatus seen;
  const auto running = executor_->running();
  if (!running.ok()) {
    seen.why = running.status();
    return seen;
  }
  seen.running = *running;
  if (seen.running) {
    const exec::CudaExecutor::KernelProgress progress = executor_->progress();
    seen.waits = waits_of(progress);
    seen.starts = progress.starts;
  }
  if (const exec::DevicePlan* failed = executor_->take_failed())
    seen.why = blame_peer(*failed, seen.asks);
  if (DeviceRelays* const relays = links_.relays()) {
    relays->expect(seen.running);
    seen.is_symptom = seen.why.ok();
    if (seen.is_symptom) seen.why = relays->take_error();
  }
  return seen;
}

constexpr BlockedOn waits[] = {BlockedOn::nothing, BlockedOn::credit, BlockedOn::data,
                               BlockedOn::entered, BlockedOn::drain};

// A thread that waits tells so again and again; what is old was told by one that goes on.
Blocked DeviceResources::waits_of(const exec::CudaExecutor::KernelProgress& progress) {
  constexpr std::int64_t old_ns = 100 * ns_per_ms;
  const std::int64_t now_ns = system_clock.now_ns();
  if (progress.waiting != waiting_) {
    waiting_ = progress.waiting;
    waiting_since_ns_ = now_ns;
  }
  if (waiting_ == 0 || now_ns - waiting_since_ns_ > old_ns)
    return {progress.started ? BlockedOn::kernel : BlockedOn::stream, -1, 0, 0};
  return {waits[static_cast<int>(progress.what)], progress.peer, 0, 0};
}

// What a kernel says that gave up, and whom it waited for.
Status DeviceResources::blame_peer(const exec::DevicePlan& failed, int& asks) const {
  const cuda::DeviceStatus said = *failed.status;
  if (said.outcome == cuda::Outcome::aborted) return {};
  const int peer = said.peer;
  const std::string name(failed.plan == nullptr ? "sends and receives"
                                                : plan::collective_name(failed.plan->collective()));
  if (said.outcome == cuda::Outcome::mismatch && failed.plan == nullptr)
    return Status(Code::Mismatch,
                  fmt::format(
                      "a send of rank {} has another length than the matching receive of rank {}",
                      peer, rank_))
        .blame({peer, rank_});
  if (said.outcome == cuda::Outcome::mismatch) {
    asks = peer;
    return Status(Code::Mismatch, fmt::format("in a kernel of {}, a message of rank {} belongs to "
                                              "another call",
                                              name, peer))
        .blame({peer});
  }
  return Status(Code::Timeout,
                fmt::format("a kernel of {} waited {} s for {} from rank {}: its kernel has not "
                            "begun, or makes no progress",
                            name, timeout_ns_ / ns_per_s,
                            blocked_on_name(waits[static_cast<int>(said.what)]), peer))
      .blame({peer});
}

}  // namespace gyre::comm
