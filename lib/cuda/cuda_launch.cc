// How a CudaExecutor puts calls on streams.
#include "lib/cuda/cuda_executor.h"
#include "lib/cuda/cuda_places.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::exec {

using cuda::DeviceLaunch;
using cuda::DeviceProtocol;
using cuda::DeviceStatus;
using cuda::DeviceTask;
using loaded::CurrentContext;
namespace cu = loaded::cu;

namespace {

struct Range {
  const std::byte* begin;
  std::uint64_t bytes;
};
bool overlap(const Range& a, const Range& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

bool has_tables(const DeviceCall& call) {
  return std::ranges::any_of(call.stripes, [](const plan::Geometry& stripe) {
    return stripe.input.table != nullptr || stripe.output.table != nullptr;
  });
}

// cudaStreamPerThread is another stream in each thread.
bool is_same(loaded::CuStream one, loaded::CuStream other) {
  return one == other && one != cu::thread_stream;
}

}  // namespace

DeviceLaunch CudaExecutor::filled(const DevicePlan& plan, const DeviceCall& call) const {
  DeviceLaunch launch;
  launch.lanes = plan.lanes[static_cast<int>(call.protocol)];
  launch.input = call.input;
  launch.output = call.output;
  launch.scratch = plan.scratch;
  launch.scratch_stride = plan.scratch_stride;
  launch.input_bytes = call.input_bytes;
  launch.output_bytes = call.output_bytes;
  launch.type = call.type;
  launch.op = call.op;
  launch.scales = call.op == ReduceOp::pre_mul_sum;
  launch.scalar = call.scalar;
  launch.divisor = call.divisor;
  launch.element_bytes = element_bytes(call.type);
  launch.ring_shift = shape_.shift(call.protocol);
  launch.slot_bytes = shape_.slot_bytes;
  launch.lends = call.lends;
  launch.input_place = call.input_place;
  launch.output_place = call.output_place;
  launch.pairs = call.pairs;
  launch.rank = call.rank;
  launch.signature = call.signature;
  launch.abort = reinterpret_cast<const std::uint32_t*>(words_->seen(words_->begin()));
  launch.claim = plan.claim;
  launch.gave_up = reinterpret_cast<std::uint32_t*>(counters_.get() + gave_up_offset);
  launch.status = reinterpret_cast<DeviceStatus*>(words_->seen(plan.status));
  launch.progress = seen_progress();
  launch.patience_ns = static_cast<std::uint64_t>(patience_ns_);
  std::ranges::copy(call.stripes, launch.geometries);
  return launch;
}

// As the device sees it.
cuda::DeviceProgress* CudaExecutor::seen_progress() const {
  return reinterpret_cast<cuda::DeviceProgress*>(words_->seen(words_->begin() + progress_offset));
}

Result<bool> CudaExecutor::has_ended(loaded::CuEvent event) const {
  const CurrentContext scope(device_->driver(), device_->owner());
  const loaded::CuResult result = device_->driver().event_query(event);
  if (result == cu::not_ready) return false;
  GYRE_TRY(device_->driver().check(result, "cuEventQuery"));
  return true;
}

// By the oldest mark that is not known to have ended, when its event is to be recorded anew soon.
Result<bool> CudaExecutor::may_run_ahead() {
  constexpr std::uint64_t part = max_launches_ahead / marks_count;
  if (launched_in_all_ - ended_in_all_ < max_launches_ahead - part) return true;
  for (const LaunchMark& mark : marks_) {
    if (mark.launched != ended_in_all_ + part) continue;
    GYRE_ASSIGN(const bool ended, has_ended(mark.ended));
    if (ended) ended_in_all_ = mark.launched;
    break;
  }
  return launched_in_all_ - ended_in_all_ < max_launches_ahead;
}

Result<bool> CudaExecutor::has_room(bool reads_host) {
  const auto& rest = device_->driver().rest;
  if (rest != nullptr && rest->puts_off_launches()) return false;
  GYRE_ASSIGN(const bool may_launch, may_run_ahead());
  const PinnedPlace& place = places_->all[places_->next];
  if (!may_launch || !reads_host || !place.used) return may_launch;
  return has_ended(place.ended);
}

// Memory for what the launch's kernel reads of the host. A graph may run it at any time.
Result<PinnedPart> CudaExecutor::place(LaunchInProgress& going, std::uint64_t bytes) {
  constexpr std::string_view purpose = "what a kernel reads of the host";
  if (going.state.graph != nullptr) {
    GYRE_ASSIGN(going.memory, PinnedBlock::make(device_, bytes, purpose));
    return PinnedPart{*going.memory, going.memory->begin()};
  }
  PinnedPlace& place = places_->all[places_->next];
  if (place.bytes < bytes) {
    GYRE_ASSIGN(place.larger, PinnedBlock::make(device_, bytes, purpose));
    place.bytes = bytes;
  }
  place.used = true;
  going.place = &place;
  if (place.larger != nullptr) return PinnedPart{*place.larger, place.larger->begin()};
  return PinnedPart{*words_, words_->begin() + places_offset + places_->next * place_bytes_};
}

Status CudaExecutor::place_tables(LaunchInProgress& going, const DeviceCall& call,
                                  DeviceLaunch& launch) {
  std::uint64_t bytes = 0;
  const auto each = [&](auto&& act) {
    for (std::size_t i = 0; i < call.stripes.size(); ++i)
      for (plan::Layout* layout : {&launch.geometries[i].input, &launch.geometries[i].output})
        if (layout->table != nullptr) act(*layout, call.stripes[i].chunk_count);
  };
  each([&](plan::Layout&, std::uint64_t chunks) { bytes += chunks * sizeof(plan::Extent); });
  if (bytes == 0) return {};
  GYRE_ASSIGN(const PinnedPart kept, place(going, bytes));
  std::byte* at = kept.begin;
  each([&](plan::Layout& layout, std::uint64_t chunks) {
    std::memcpy(at, layout.table, chunks * sizeof(plan::Extent));
    layout.table = reinterpret_cast<const plan::Extent*>(kept.block.seen(at));
    at += chunks * sizeof(plan::Extent);
  });
  return {};
}

// The first task of each block, block after block, and then all the others.
Status CudaExecutor::place_tasks(LaunchInProgress& going,
                                 const std::vector<std::vector<DeviceTask>>& by_block,
                                 DeviceLaunch& launch) {
  std::size_t count = 0;
  for (const auto& tasks : by_block) count += tasks.size();
  GYRE_ASSIGN(const PinnedPart kept, place(going, count * sizeof(DeviceTask)));
  auto* const all = reinterpret_cast<DeviceTask*>(kept.begin);
  std::size_t next = by_block.size();
  for (std::size_t block = 0; block < by_block.size(); ++block) {
    DeviceTask* at = &all[block];
    *at = {};
    for (std::size_t i = 0; i < by_block[block].size(); ++i) {
      *at = by_block[block][i];
      at->then = nullptr;
      if (i + 1 == by_block[block].size()) continue;
      at->then = reinterpret_cast<const DeviceTask*>(kept.block.seen(&all[next]));
      at = &all[next++];
    }
  }
  launch.lanes = nullptr;
  launch.tasks = reinterpret_cast<const DeviceTask*>(kept.block.seen(all));
  return {};
}

// A call on another stream than the last one's waits for that one on the device.
Result<LaunchInProgress> CudaExecutor::begin_launch(const StreamState& stream) {
  const loaded::CudaDriver& driver = device_->driver();
  LaunchInProgress going;
  going.state = stream;
  if (stream.spoiled) return driver.check(cu::capture_spoiled, "a launch into a capture");
  if (stream.graph == nullptr) {
    if (launched_.load(std::memory_order_relaxed) && !is_same(stream.stream, last_stream_))
      GYRE_TRY(
          driver.check(driver.stream_wait_event(stream.stream, ended_, 0), "cuStreamWaitEvent"));
  } else if (stream.capture == last_capture_ && !is_same(stream.stream, last_captured_)) {
    GYRE_TRY(
        driver.check(driver.stream_wait_event(stream.stream, captured_, 0), "cuStreamWaitEvent"));
  }
  return going;
}

// The graph holds the executor, and so all memory that the kernel will ever touch of it.
Result<RetainedLaunch*> CudaExecutor::retain(LaunchInProgress& going) {
  const loaded::CudaDriver& driver = device_->driver();
  // Before the graph can run. Who frees what kernels have used looks at it: too early does no harm.
  captured_once_.store(true, std::memory_order_relaxed);
  auto retained = std::make_unique<RetainedLaunch>(
      RetainedLaunch{shared_from_this(), std::move(going.memory), graph_mark()});
  const auto let_go = [](void* body) {
    std::shared_ptr<RetainedLaunch> last(static_cast<RetainedLaunch*>(body));
    const Reclaim reclaim = last->executor->reclaim_;
    reclaim(std::move(last));
  };
  loaded::CuUserObject object = nullptr;
  GYRE_TRY(driver.check(
      driver.user_object_create(&object, retained.get(), let_go, 1, cu::no_destructor_sync),
      "cuUserObjectCreate"));
  RetainedLaunch* const held = retained.release();
  const loaded::CuResult kept =
      driver.graph_retain(going.state.graph, object, 1, cu::graph_takes_reference);
  if (kept == cu::success) return held;
  (void)driver.user_object_release(object, 1);
  return driver.check(kept, "cuGraphRetainUserObject");
}

// Between two functions of the host, if somebody has to know of replays: the graph holds what these
// use.
Status CudaExecutor::launch_captured(LaunchInProgress& going,
                                     const std::function<Status()>& launch) {
  GYRE_ASSIGN(RetainedLaunch * held, retain(going));
  const bool is_watched = replays_ != nullptr && replays_->is_needed();
  const auto tell = [&](void (*function)(void*)) {
    return device_->driver().check(
        device_->driver().launch_host(going.state.stream, function, held), "cuLaunchHostFunc");
  };
  if (is_watched)
    GYRE_TRY(
        tell([](void* body) { static_cast<RetainedLaunch*>(body)->executor->replays_->begins(); }));
  GYRE_TRY(launch());
  if (is_watched)
    GYRE_TRY(
        tell([](void* body) { static_cast<RetainedLaunch*>(body)->executor->replays_->ends(); }));
  last_capture_ = going.state.capture;
  last_captured_ = going.state.stream;
  return device_->driver().check(device_->driver().event_record(captured_, going.state.stream),
                                 "cuEventRecord");
}

Status CudaExecutor::finish_launch(LaunchInProgress& going, loaded::CuFunction kernel,
                                   std::uint32_t blocks, DeviceLaunch& launch) {
  const loaded::CudaDriver& driver = device_->driver();
  launch.sequence = reinterpret_cast<std::uint64_t*>(counters_.get());
  launch.blocks_ended = reinterpret_cast<std::uint32_t*>(counters_.get() + ended_offset);
  launch.starts = reinterpret_cast<std::uint32_t*>(counters_.get() + starts_offset);
  launch.progress = seen_progress();
  launch.number = going.state.graph == nullptr ? launches_ + 1 : 0;
  const auto put = [&] { return device_->launch(kernel, blocks, going.state.stream, &launch); };
  if (going.state.graph != nullptr) return launch_captured(going, put);
  loaded::CudaRest::Launching launching;
  if (driver.rest != nullptr) launching = driver.rest->launching();
  GYRE_TRY(put());
  last_stream_ = going.state.stream;
  if (going.place != nullptr) {
    GYRE_TRY(
        driver.check(driver.event_record(going.place->ended, going.state.stream), "cuEventRecord"));
    places_->next = (places_->next + 1) % places_count;
  }
  constexpr std::uint64_t part = max_launches_ahead / marks_count;
  if (++launched_in_all_ % part == 0) {
    LaunchMark& mark = marks_[launched_in_all_ / part % marks_count];
    mark.launched = launched_in_all_;
    GYRE_TRY(driver.check(driver.event_record(mark.ended, going.state.stream), "cuEventRecord"));
  }
  GYRE_TRY(driver.check(driver.event_record(ended_, going.state.stream), "cuEventRecord"));
  // Pairs with the acquire in CudaExecutor::running.
  launched_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  ++launches_;
  return {};
}

bool CudaExecutor::can_follow(const DeviceCall& before, const DeviceCall& after) {
  if (before.protocol != after.protocol || before.type != after.type || before.op != after.op ||
      before.stripes.size() != after.stripes.size() || has_tables(before) || has_tables(after))
    return false;
  const Range in_before{before.input, before.input_bytes}, in_after{after.input, after.input_bytes};
  const Range out_before{before.output, before.output_bytes};
  const Range out_after{after.output, after.output_bytes};
  return !overlap(out_before, in_after) && !overlap(out_before, out_after) &&
         !overlap(in_before, out_after);
}

Status CudaExecutor::launch(const DevicePlan& plan, std::span<const DeviceCall> calls,
                            const StreamState& stream) {
  GYRE_ASSIGN(LaunchInProgress going, begin_launch(stream));
  const DeviceCall& first = calls.front();
  const auto lanes = static_cast<std::size_t>(plan.plan->lane_count());
  const std::size_t blocks = first.stripes.size() * lanes;
  DeviceLaunch launch = filled(plan, first);
  launch.calls = static_cast<std::uint32_t>(calls.size());
  if (calls.size() == 1) {
    GYRE_TRY(place_tables(going, first, launch));
  } else {
    std::vector<std::vector<DeviceTask>> by_block(blocks);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const DeviceLaunch one = filled(plan, calls[i]);
      for (std::size_t block = 0; block < blocks; ++block) {
        DeviceTask& task = by_block[block].emplace_back();
        task.lane = &launch.lanes[block];
        task.call = one;
        task.call.ordinal = static_cast<std::uint32_t>(i);
        task.geometry = one.geometries[block / lanes];
      }
    }
    GYRE_TRY(place_tasks(going, by_block, launch));
  }
  return finish_launch(going, device_->kernel(first.protocol, first.type, first.op),
                       static_cast<std::uint32_t>(blocks), launch);
}

// The first stream waits for the others, or they for it.
Status CudaExecutor::join(std::span<const loaded::CuStream> streams, bool before) {
  const loaded::CudaDriver& driver = device_->driver();
  for (loaded::CuStream other : streams.subspan(1)) {
    const loaded::CuStream from = before ? other : streams[0], to = before ? streams[0] : other;
    GYRE_TRY(driver.check(driver.event_record(joined_, from), "cuEventRecord"));
    GYRE_TRY(driver.check(driver.stream_wait_event(to, joined_, 0), "cuStreamWaitEvent"));
  }
  return {};
}

Status CudaExecutor::launch(std::span<const DeviceTransfer> transfers, std::uint32_t rank,
                            const StreamState& stream) {
  GYRE_ASSIGN(LaunchInProgress going, begin_launch(stream));
  std::vector<std::vector<DeviceTask>> by_block;
  for (const DeviceTransfer& one : transfers) {
    if (by_block.size() <= one.block) by_block.resize(one.block + 1);
    DeviceCall call;
    call.input = call.output = one.place;
    call.input_bytes = call.output_bytes = one.bytes;
    call.rank = rank;
    call.signature = one.signature;
    DeviceTask& task = by_block[one.block].emplace_back();
    task.lane = one.lane;
    task.call = filled(*transfers_, call);
    task.geometry.input = task.geometry.output = plan::Layout::even(one.bytes, one.bytes);
    task.geometry.piece_bytes = shape_.max_piece(DeviceProtocol::simple, 1, 1);
    task.geometry.chunk_count = 1;
  }
  DeviceLaunch launch;
  launch.rank = rank;
  launch.calls = 0;
  GYRE_TRY(place_tasks(going, by_block, launch));
  return finish_launch(going,
                       device_->kernel(DeviceProtocol::simple, ElementType::uint8, ReduceOp::sum),
                       static_cast<std::uint32_t>(by_block.size()), launch);
}

Status CudaExecutor::launch(const DevicePlan& plan, std::span<const DeviceCall> calls,
                            loaded::CuStream stream) {
  const CurrentContext scope(device_->driver(), device_->owner());
  GYRE_ASSIGN(const StreamState state, StreamState::ask(device_->driver(), stream));
  return launch(plan, calls, state);
}

// To wait for a captured stream is to be captured with it.
Status CudaExecutor::launch(std::span<const DeviceTransfer> transfers, std::uint32_t rank,
                            std::span<const loaded::CuStream> streams) {
  const CurrentContext scope(device_->driver(), device_->owner());
  GYRE_TRY(join(streams, true));
  GYRE_ASSIGN(const StreamState state, StreamState::ask(device_->driver(), streams[0]));
  GYRE_TRY(launch(transfers, rank, state));
  return join(streams, false);
}

}  // namespace gyre::exec
