#include "lib/cuda/cuda_executor.h"

#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/cuda/cuda_places.h"

#include <fmt/core.h>

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

// Small allocations of the driver's share a block of so many bytes, and CUDA IPC exports the block:
// what others have would be shown as well (CUDA C++ Programming Guide, Interprocess Communication).
constexpr std::uint64_t pool_granule = 2 << 20;

// What is written into device memory in one piece, with pointers into itself.
class TableWriter {
 public:
  explicit TableWriter(std::byte* begin) : begin_(begin) {}
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

void write_lane(TableWriter& writing, const plan::Lane& lane, const DeviceShape& shape,
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
TableWriter write_plan(std::byte* begin, std::span<const plan::Plan> by_channel,
                       const DeviceShape& shape, const CudaExecutor::FindLink& find,
                       DevicePlan& made) {
  TableWriter writing(begin);
  for (int i = 0; i < cuda::device_protocol_count; ++i) {
    std::vector<DeviceLane> lanes;
    for (std::uint32_t channel = 0; channel < shape.channels; ++channel) {
      const plan::Plan& plan = by_channel[channel % by_channel.size()];
      for (std::uint32_t lane = 0; lane < plan.lane_count(); ++lane)
        write_lane(writing, plan.lane(lane), shape, channel, static_cast<DeviceProtocol>(i), find,
                   lanes);
    }
    made.lanes[i] = writing.add(lanes.data(), lanes.size());
  }
  return writing;
}

plan::Step one_chunk(plan::Buffer local, plan::Buffer store) {
  plan::Step step;
  step.local = local;
  step.store = store;
  step.send_count = local != plan::Buffer::none ? 1 : 0;
  step.recv_count = store != plan::Buffer::none ? 1 : 0;
  return step;
}

// The lanes of both ways to a peer.
TableWriter write_pair(std::byte* begin, int peer, std::uint32_t channels, const DeviceShape& shape,
                       const DeviceLink& link, DevicePair& made) {
  TableWriter writing(begin);
  const plan::Link to{peer, 0};
  const plan::Step send = one_chunk(plan::Buffer::input, plan::Buffer::none);
  const plan::Step receive = one_chunk(plan::Buffer::none, plan::Buffer::output);
  const auto write_way = [&](bool sends) {
    std::vector<DeviceLane> lanes;
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
      DeviceEnd end = sends ? send_end(shape, link, channel, DeviceProtocol::simple)
                            : receive_end(shape, link, channel, DeviceProtocol::simple);
      end.lent = nullptr;
      end.borrowed = nullptr;
      DeviceLane& lane = lanes.emplace_back();
      lane.channel = channel;
      lane.lane.links = writing.add(&to, 1);
      lane.lane.steps = writing.add(sends ? &send : &receive, 1);
      lane.lane.link_count = lane.lane.step_count = 1;
      const DeviceEnd none;
      lane.send = writing.add(sends ? &end : &none, 1);
      lane.receive = writing.add(sends ? &none : &end, 1);
    }
    return writing.add(lanes.data(), lanes.size());
  };
  made.send = write_way(true);
  made.receive = write_way(false);
  return writing;
}

}  // namespace

CudaExecutor::CudaExecutor(std::shared_ptr<const CudaDevice> device, const DeviceShape& shape,
                           std::int64_t patience_ns, Reclaim reclaim, std::uint64_t tables_bytes)
    : device_(std::move(device)),
      shape_(shape),
      patience_ns_(patience_ns),
      reclaim_(std::move(reclaim)),
      place_bytes_(round_up(std::max(min_place_bytes, tables_bytes), 4096)),
      places_(std::make_unique<PinnedPlaces>()) {}

Result<std::shared_ptr<CudaExecutor>> CudaExecutor::create(std::shared_ptr<const CudaDevice> device,
                                                           const DeviceShape& shape,
                                                           std::uint64_t reserved_bytes,
                                                           std::int64_t patience_ns,
                                                           Reclaim reclaim,
                                                           std::uint64_t tables_bytes) {
  std::shared_ptr<CudaExecutor> made(
      new CudaExecutor(std::move(device), shape, patience_ns, std::move(reclaim), tables_bytes));
  GYRE_TRY(made->prepare(reserved_bytes));
  if (const auto& rest = made->device_->driver().rest; rest != nullptr) rest->add(*made);
  return made;
}

Status CudaExecutor::prepare(std::uint64_t reserved_bytes) {
  // A call should not have to take memory: the driver may wait for kernels then.
  GYRE_ASSIGN(words_, PinnedBlock::make(device_, places_offset + places_count * place_bytes_,
                                        "the words of a communicator"));
  GYRE_ASSIGN(pool_,
              DeviceBlock::make(device_, round_up(reserved_bytes + counters_bytes, pool_granule),
                                "the links of a communicator"));
  GYRE_ASSIGN(counters_, allocate(counters_bytes, "counters"));
  const CurrentContext scope(device_->driver(), device_->owner());
  std::vector<loaded::CuEvent*> events = {&ended_, &joined_, &captured_};
  for (PinnedPlace& place : places_->all) {
    place.bytes = place_bytes_;
    events.push_back(&place.ended);
  }
  for (LaunchMark& mark : marks_) events.push_back(&mark.ended);
  for (loaded::CuEvent* event : events)
    GYRE_TRY(device_->driver().check(
        device_->driver().event_create(event, cu::event_disable_timing), "cuEventCreate"));
  return {};
}

CudaExecutor::~CudaExecutor() {
  if (const auto& rest = device_->driver().rest; rest != nullptr) rest->remove(*this);
  const CurrentContext scope(device_->driver(), device_->owner());
  for (loaded::CuEvent event : {ended_, joined_, captured_})
    if (event != nullptr) (void)device_->driver().event_destroy(event);
  for (PinnedPlace& place : places_->all)
    if (place.ended != nullptr) (void)device_->driver().event_destroy(place.ended);
  for (LaunchMark& mark : marks_)
    if (mark.ended != nullptr) (void)device_->driver().event_destroy(mark.ended);
}

Result<std::shared_ptr<std::byte>> CudaExecutor::allocate(std::uint64_t bytes,
                                                          std::string_view purpose) {
  bytes = round_up(bytes, 256);
  if (bytes > pool_->bytes() - pool_used_) {
    GYRE_ASSIGN(pool_, DeviceBlock::make(device_, round_up(bytes, pool_granule), purpose));
    pool_used_ = 0;
    log_info(Subsystem::alloc, "device {}: {} more bytes for {}", device_->ordinal(),
             pool_->bytes(), purpose);
  }
  const std::shared_ptr<std::byte> memory(pool_, pool_->begin() + pool_used_);
  pool_used_ += bytes;
  GYRE_TRY(device_->zero(memory.get(), bytes));
  return memory;
}

Result<const DevicePlan*> CudaExecutor::add_plan(std::unique_ptr<DevicePlan> made) {
  const std::lock_guard lock(mutex_);
  if (plans_.size() == max_plans)
    return Status(Code::SystemError,
                  fmt::format("more than {} plans on one communicator: each root of a broadcast, "
                              "reduce, gather or scatter has its own",
                              max_plans));
  const std::size_t place = plans_.size() + 1;
  made->status = reinterpret_cast<DeviceStatus*>(words_->begin() + place * status_spacing);
  made->claim = reinterpret_cast<std::uint32_t*>(counters_.get() + claims_offset) + place;
  plans_.push_back(std::move(made));
  return plans_.back().get();
}

Result<const DevicePlan*> CudaExecutor::bind(std::span<const plan::Plan> by_channel,
                                             const FindLink& find) {
  auto made = std::make_unique<DevicePlan>();
  const plan::Plan& plan = by_channel.front();
  made->plan = &plan;
  const std::uint64_t bytes = write_plan(nullptr, by_channel, shape_, find, *made).bytes().size();
  GYRE_ASSIGN(auto memory, allocate(bytes, "a plan"));
  GYRE_TRY(device_->upload(memory.get(),
                           write_plan(memory.get(), by_channel, shape_, find, *made).bytes()));
  kept_.push_back(std::move(memory));
  if (plan.scratch_chunks() > 0) {
    made->scratch_stride = plan.scratch_chunks() * shape_.slot_bytes;
    GYRE_ASSIGN(auto scratch, allocate(made->scratch_stride * shape_.channels, "scratch"));
    made->scratch = scratch.get();
    kept_.push_back(std::move(scratch));
  }
  return add_plan(std::move(made));
}

Result<DevicePair> CudaExecutor::bind_pair(int peer, std::uint32_t channels,
                                           const DeviceLink& link) {
  DevicePair made;
  const std::uint64_t bytes =
      write_pair(nullptr, peer, channels, shape_, link, made).bytes().size();
  GYRE_ASSIGN(auto memory, allocate(bytes, "lanes for sends and receives"));
  GYRE_TRY(device_->upload(memory.get(),
                           write_pair(memory.get(), peer, channels, shape_, link, made).bytes()));
  kept_.push_back(std::move(memory));
  if (transfers_ == nullptr) {
    GYRE_ASSIGN(transfers_, add_plan(std::make_unique<DevicePlan>()));
  }
  return made;
}

void CudaExecutor::abort() {
  auto& word = *reinterpret_cast<std::uint32_t*>(words_->begin());
  // Kernels look at it now and then and need nothing that was written before.
  std::atomic_ref(word).store(1, std::memory_order_relaxed);
}

bool CudaExecutor::is_running() const {
  const Result<bool> left = running();
  return left.ok() && *left;
}

Result<bool> CudaExecutor::running() const {
  // Pairs with the release in finish_launch.
  if (!launched_.load(std::memory_order_acquire)) return false;
  const CurrentContext scope(device_->driver(), device_->owner());
  const loaded::CuResult result = device_->driver().event_query(ended_);
  if (result == cu::not_ready) return true;
  GYRE_TRY(device_->driver().check(result, "a kernel of this communicator failed"));
  return false;
}

CudaExecutor::KernelProgress CudaExecutor::waiting() const {
  auto& shown = *reinterpret_cast<cuda::DeviceProgress*>(words_->begin() + progress_offset);
  KernelProgress seen;
  // Each word stands for itself.
  seen.starts = std::atomic_ref(shown.started).load(std::memory_order_relaxed);
  seen.waiting = std::atomic_ref(shown.waiting).load(std::memory_order_relaxed);
  seen.what = static_cast<cuda::WaitingFor>(std::min<std::uint64_t>(seen.waiting >> 56, 4));
  seen.peer = static_cast<int>(seen.waiting >> 32 & 0xffffff);
  return seen;
}

CudaExecutor::KernelProgress CudaExecutor::progress() const {
  KernelProgress seen = waiting();
  const std::lock_guard lock(mutex_);
  auto& shown = *reinterpret_cast<cuda::DeviceProgress*>(words_->begin() + progress_offset);
  seen.started = std::atomic_ref(shown.launched).load(std::memory_order_relaxed) >= launches_;
  return seen;
}

namespace {

// Pairs with the release in Walk::stop (kernels/cuda/walk.h), after which all of it has come.
bool is_told(const std::unique_ptr<DevicePlan>& plan) {
  return std::atomic_ref(plan->status->told).load(std::memory_order_acquire) != 0;
}

}  // namespace

bool CudaExecutor::has_given_up() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(plans_, is_told);
}

bool CudaExecutor::shows_replay() const {
  if (!was_captured()) return false;
  auto& shown = *reinterpret_cast<cuda::DeviceProgress*>(words_->begin() + progress_offset);
  // Each word stands for itself. A kernel that begins and ends between the two loads counts as
  // running, once.
  const std::uint32_t ended = std::atomic_ref(shown.ended).load(std::memory_order_relaxed);
  const std::uint32_t started = std::atomic_ref(shown.started).load(std::memory_order_relaxed);
  return started != ended && !has_given_up();
}

// While one graph has a launch of it.
bool CudaExecutor::may_come() const {
  const std::lock_guard lock(mutex_);
  return !graph_mark_.expired();
}

// As a launch: whoever frees memory now has not seen the mark, and is to be done before a replay.
std::shared_ptr<const void> CudaExecutor::graph_mark() {
  loaded::CudaRest::Launching launching;
  if (const auto& rest = device_->driver().rest; rest != nullptr) launching = rest->launching();
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const void> mark = graph_mark_.lock();
  if (mark == nullptr) mark = std::make_shared<char>();
  graph_mark_ = mark;
  return mark;
}

const DevicePlan* CudaExecutor::take_failed() {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<DevicePlan>& plan : plans_) {
    if (!is_told(plan) || std::ranges::find(taken_, plan.get()) != taken_.end()) continue;
    taken_.push_back(plan.get());
    return plan.get();
  }
  return nullptr;
}

}  // namespace gyre::exec
