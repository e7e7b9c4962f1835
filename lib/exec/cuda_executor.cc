#include "lib/exec/cuda_executor.h"

#include "lib/base/log.h"
#include "lib/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gyre::exec {

using cuda::DeviceEnd;
using cuda::DeviceLane;
using cuda::DeviceLaunch;
using cuda::DeviceProtocol;
using cuda::DeviceStatus;
using loaded::CurrentContext;
namespace cu = loaded::cu;

namespace {

constexpr std::uint64_t status_spacing = 128;
constexpr std::uint64_t plans_most = 511;  // beside the abort word, in 64 KiB
constexpr std::uint64_t words_bytes = (plans_most + 1) * status_spacing;
// The device's own words: the sequence of calls, and the blocks that have ended.
constexpr std::uint64_t counters_bytes = 256, ended_offset = 128;
constexpr std::size_t tables_slots = 8;  // calls with tables on their way

// What is written into device memory in one piece, with pointers into itself.
class Writing {
 public:
  explicit Writing(std::byte* begin) : begin_(begin) {}
  // Where it will lie.
  template <typename T>
  const T* add(const T* items, std::size_t count) {
    const std::size_t at = round_up(bytes_.size(), 16);
    bytes_.resize(at + count * sizeof(T));
    if (count > 0) std::memcpy(bytes_.data() + at, items, count * sizeof(T));
    return reinterpret_cast<const T*>(begin_ + at);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::byte* const begin_;  // of the device's memory; null while it only counts
  std::vector<std::byte> bytes_;
};

void write_lane(Writing& writing, const plan::Lane& lane, const DeviceShape& shape,
                std::uint32_t channel, DeviceProtocol protocol, const CudaExecutor::FindLink& find,
                std::vector<DeviceLane>& lanes) {
  const std::vector<bool> sends = plan::used_links(lane, true);
  const std::vector<bool> receives = plan::used_links(lane, false);
  std::vector<DeviceEnd> out(lane.link_count), in(lane.link_count);
  for (std::uint32_t i = 0; i < lane.link_count; ++i) {
    const DeviceLink link = find(lane.links[i]);
    if (sends[i]) out[i] = send_end(shape, link, channel, protocol);
    if (receives[i]) in[i] = receive_end(shape, link, channel, protocol);
  }
  DeviceLane made{lane, channel, nullptr, nullptr};
  made.lane.links = writing.add(lane.links, lane.link_count);
  made.lane.steps = writing.add(lane.steps, lane.step_count);
  made.send = writing.add(out.data(), out.size());
  made.receive = writing.add(in.data(), in.size());
  lanes.push_back(made);
}

// Into memory that begins at `begin`: the lanes of all protocols.
Writing write_plan(std::byte* begin, const plan::Plan& plan, const DeviceShape& shape,
                   const CudaExecutor::FindLink& find, DevicePlan& made) {
  Writing writing(begin);
  for (int i = 0; i < cuda::device_protocol_count; ++i) {
    std::vector<DeviceLane> lanes;
    for (std::uint32_t channel = 0; channel < shape.channels; ++channel)
      for (std::uint32_t lane = 0; lane < plan.lane_count(); ++lane)
        write_lane(writing, plan.lane(lane), shape, channel, static_cast<DeviceProtocol>(i), find,
                   lanes);
    made.lanes[i] = writing.add(lanes.data(), lanes.size());
  }
  return writing;
}

}  // namespace

// Pinned places for the tables of calls on their way; a place is free when its call has ended.
struct CudaExecutor::Tables {
  struct Place {
    std::unique_ptr<PinnedBlock> memory;
    std::uint64_t bytes = 0;
    loaded::CuEvent ended = nullptr;
    bool used = false;
  };
  std::array<Place, tables_slots> places;
  std::size_t next = 0;
};

CudaExecutor::CudaExecutor(std::shared_ptr<const CudaDevice> device, const DeviceShape& shape,
                           std::int64_t patience_ns)
    : device_(std::move(device)),
      shape_(shape),
      patience_ns_(patience_ns),
      tables_(std::make_unique<Tables>()) {}

Result<std::unique_ptr<CudaExecutor>> CudaExecutor::create(std::shared_ptr<const CudaDevice> device,
                                                           const DeviceShape& shape,
                                                           std::uint64_t reserved_bytes,
                                                           std::int64_t patience_ns) {
  std::unique_ptr<CudaExecutor> made(new CudaExecutor(std::move(device), shape, patience_ns));
  GYRE_TRY(made->prepare(reserved_bytes));
  return made;
}

Status CudaExecutor::prepare(std::uint64_t reserved_bytes) {
  GYRE_ASSIGN(words_, PinnedBlock::make(device_, words_bytes, "the words of a communicator"));
  GYRE_ASSIGN(pool_, DeviceBlock::make(device_, reserved_bytes + counters_bytes,
                                       "the links of a communicator"));
  GYRE_ASSIGN(counters_, allocate(counters_bytes, "counters"));
  const CurrentContext scope(device_->driver(), device_->owner());
  return device_->driver().check(device_->driver().event_create(&ended_, cu::event_disable_timing),
                                 "cuEventCreate");
}

CudaExecutor::~CudaExecutor() {
  const CurrentContext scope(device_->driver(), device_->owner());
  if (ended_ != nullptr) (void)device_->driver().event_destroy(ended_);
  for (Tables::Place& place : tables_->places)
    if (place.ended != nullptr) (void)device_->driver().event_destroy(place.ended);
}

Result<std::shared_ptr<std::byte>> CudaExecutor::allocate(std::uint64_t bytes,
                                                          std::string_view purpose) {
  bytes = round_up(bytes, 256);
  std::shared_ptr<std::byte> memory;
  if (bytes <= pool_->bytes() - pool_used_) {
    memory = {pool_, pool_->begin() + pool_used_};
    pool_used_ += bytes;
  } else {
    GYRE_ASSIGN(auto block, DeviceBlock::make(device_, bytes, purpose));
    std::byte* const begin = block->begin();
    memory = {std::move(block), begin};
    log_info(Subsystem::alloc, "device {}: {} more bytes for {}", device_->ordinal(), bytes,
             purpose);
  }
  GYRE_TRY(device_->zero(memory.get(), bytes));
  return memory;
}

Result<std::unique_ptr<DevicePlan>> CudaExecutor::bind(const plan::Plan& plan,
                                                       const FindLink& find) {
  if (plans_.size() == plans_most)
    return invalid_usage(
        fmt::format("more than {} plans on one communicator: roots of broadcasts "
                    "and the like count apart",
                    plans_most));
  auto made = std::make_unique<DevicePlan>();
  made->plan = &plan;
  const std::uint64_t bytes = write_plan(nullptr, plan, shape_, find, *made).bytes().size();
  GYRE_ASSIGN(auto memory, allocate(bytes, "a plan"));
  GYRE_TRY(
      device_->upload(memory.get(), write_plan(memory.get(), plan, shape_, find, *made).bytes()));
  held_.push_back(std::move(memory));
  if (plan.scratch_chunks() > 0) {
    made->scratch_stride = plan.scratch_chunks() * shape_.slot_bytes;
    GYRE_ASSIGN(auto scratch, allocate(made->scratch_stride * shape_.channels, "scratch"));
    made->scratch = scratch.get();
    held_.push_back(std::move(scratch));
  }
  const std::lock_guard lock(mutex_);
  plans_.push_back(made.get());
  made->status = reinterpret_cast<DeviceStatus*>(words_->begin() + plans_.size() * status_spacing);
  return made;
}

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
  launch.pairs = call.pairs;
  launch.rank = call.rank;
  launch.signature = call.signature;
  launch.sequence = reinterpret_cast<std::uint64_t*>(counters_.get());
  launch.blocks_ended = reinterpret_cast<std::uint32_t*>(counters_.get() + ended_offset);
  launch.abort = reinterpret_cast<const std::uint32_t*>(words_->seen(words_->begin()));
  launch.status = reinterpret_cast<DeviceStatus*>(words_->seen(plan.status));
  launch.patience_ns = static_cast<std::uint64_t>(patience_ns_);
  std::ranges::copy(call.stripes, launch.geometries);
  return launch;
}

Result<bool> CudaExecutor::has_room_for_tables() {
  const Tables::Place& place = tables_->places[tables_->next];
  if (!place.used) return true;
  const CurrentContext scope(device_->driver(), device_->owner());
  const loaded::CuResult result = device_->driver().event_query(place.ended);
  if (result == cu::not_ready) return false;
  GYRE_TRY(device_->driver().check(result, "cuEventQuery"));
  return true;
}

// Tables go to pinned memory, where the kernel reads them.
Status CudaExecutor::place_tables(const DeviceCall& call, bool captured, DeviceLaunch& launch) {
  std::uint64_t bytes = 0;
  const auto each = [&](auto&& act) {
    for (std::size_t i = 0; i < call.stripes.size(); ++i)
      for (plan::Layout* layout : {&launch.geometries[i].input, &launch.geometries[i].output})
        if (layout->table != nullptr) act(*layout, call.stripes[i].chunk_count);
  };
  each([&](plan::Layout&, std::uint64_t chunks) { bytes += chunks * sizeof(plan::Extent); });
  if (bytes == 0) return {};
  if (captured)
    return invalid_usage(
        "a call whose blocks lie in tables cannot be captured into a graph yet: "
        "use equal blocks, or GYRE_ALGO=ring");
  Tables::Place& place = tables_->places[tables_->next];
  if (place.bytes < bytes) {
    GYRE_ASSIGN(place.memory, PinnedBlock::make(device_, bytes, "tables of blocks"));
    place.bytes = bytes;
  }
  if (place.ended == nullptr)
    GYRE_TRY(device_->driver().check(
        device_->driver().event_create(&place.ended, cu::event_disable_timing), "cuEventCreate"));
  std::byte* at = place.memory->begin();
  each([&](plan::Layout& layout, std::uint64_t chunks) {
    std::memcpy(at, layout.table, chunks * sizeof(plan::Extent));
    layout.table = reinterpret_cast<const plan::Extent*>(place.memory->seen(at));
    at += chunks * sizeof(plan::Extent);
  });
  place.used = true;
  return {};
}

// A call on another stream than the last one's waits for that one on the device.
Status CudaExecutor::order(loaded::CuStream stream, bool captured) {
  if (!launched_ || stream == last_stream_ || captured) return {};
  return device_->driver().check(device_->driver().stream_wait_event(stream, ended_, 0),
                                 "cuStreamWaitEvent");
}

Status CudaExecutor::launch(const DevicePlan& plan, const DeviceCall& call,
                            loaded::CuStream stream) {
  const loaded::CudaDriver& driver = device_->driver();
  const CurrentContext scope(driver, device_->owner());
  int capture = cu::capture_none;
  GYRE_TRY(driver.check(driver.stream_capturing(stream, &capture), "cuStreamIsCapturing"));
  const bool captured = capture != cu::capture_none;
  GYRE_TRY(order(stream, captured));
  DeviceLaunch launch = filled(plan, call);
  GYRE_TRY(place_tables(call, captured, launch));
  void* parameters[] = {&launch};
  const auto blocks = static_cast<unsigned>(call.stripes.size() * plan.plan->lane_count());
  GYRE_TRY(driver.check(
      driver.launch(device_->kernel(call.protocol, call.type, call.op), blocks, 1, 1,
                    device_->threads(), 1, 1, 0, stream, parameters, nullptr),
      fmt::format("cuLaunchKernel of {} blocks of {} threads", blocks, device_->threads())));
  if (captured) return {};
  last_stream_ = stream;
  Tables::Place& place = tables_->places[tables_->next];
  const bool has_tables = std::ranges::any_of(call.stripes, [](const plan::Geometry& stripe) {
    return stripe.input.table != nullptr || stripe.output.table != nullptr;
  });
  if (has_tables) {
    GYRE_TRY(driver.check(driver.event_record(place.ended, stream), "cuEventRecord"));
    tables_->next = (tables_->next + 1) % tables_slots;
  }
  const std::lock_guard lock(mutex_);
  GYRE_TRY(driver.check(driver.event_record(ended_, stream), "cuEventRecord"));
  launched_ = true;
  return {};
}

void CudaExecutor::abort() {
  auto& word = *reinterpret_cast<std::uint32_t*>(words_->begin());
  // Kernels look at it now and then and need nothing that was written before.
  std::atomic_ref(word).store(1, std::memory_order_relaxed);
}

Result<bool> CudaExecutor::running() const {
  const std::lock_guard lock(mutex_);
  if (!launched_) return false;
  const CurrentContext scope(device_->driver(), device_->owner());
  const loaded::CuResult result = device_->driver().event_query(ended_);
  if (result == cu::not_ready) return true;
  GYRE_TRY(device_->driver().check(result, "a kernel of this communicator failed"));
  return false;
}

// The kernel writes what it says after it has claimed the status, word by word, and other blocks of
// it may still wait: what it says is read at the next look, when all of it has come.
const DevicePlan* CudaExecutor::take_failed() {
  const std::lock_guard lock(mutex_);
  for (const DevicePlan* plan : plans_) {
    std::atomic_ref claimed(plan->status->claimed);
    if (claimed.load(std::memory_order_acquire) == 0) continue;
    if (std::ranges::find(told_, plan) != told_.end()) continue;
    if (std::ranges::find(noticed_, plan) == noticed_.end()) {
      noticed_.push_back(plan);
      continue;
    }
    told_.push_back(plan);
    return plan;
  }
  return nullptr;
}

}  // namespace gyre::exec
