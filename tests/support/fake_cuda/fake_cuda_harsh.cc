// The fake driver at its harshest: all that NVIDIA's may do where it promises nothing.
//
//   queues     streams share a few hardware queues, by the order of their creation. A queue does
//              one thing after another, except copies, which have engines. It holds a limited
//              number of launches
//   streams    the default stream and blocking streams wait for each other
//   memory     allocating, freeing, mapping and sharing wait until no kernel of the device and its
//              peers runs, and meanwhile block other threads' launches and event queries. Kernels
//              reach memory of other devices only where access was enabled
//
// A thread that would wait for ever is released after a while, and the test fails.
#include "tests/support/base/slowness.h"
#include "tests/support/fake_cuda/fake_cuda_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>

namespace gyre::tests {

using namespace loaded;

namespace {

constexpr auto call_patience = slowness * std::chrono::seconds(5);
constexpr auto stream_patience = slowness * std::chrono::seconds(15);
constexpr auto lost_patience = std::chrono::milliseconds(10),
               glance = std::chrono::milliseconds(50);
constexpr int connections_by_default = 8, connections_under_mps = 2, max_connections = 32;
constexpr std::ptrdiff_t max_launches = 1024;  // of a queue

// How long somebody waits for kernels before they count as hung: so much time, and as much of this
// process's on two processors, which kernels that poll in vain use up. So a crowded machine is not
// taken for a hang. Where the process does nothing at all, `max_crowding` times as long.
class Patience {
 public:
  explicit Patience(std::chrono::nanoseconds time)
      : time_(time), began_(std::chrono::steady_clock::now()), used_(processor_time()) {}

  bool is_over() const {
    const auto waited = std::chrono::steady_clock::now() - began_;
    const bool has_worked = processor_time() - used_ >= processors * time_;
    return waited >= (has_worked ? time_ : max_crowding * time_);
  }

 private:
  static constexpr int processors = 2, max_crowding = 8;

  static std::chrono::nanoseconds processor_time() {
    timespec now = {};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }

  std::chrono::nanoseconds time_;
  std::chrono::steady_clock::time_point began_;
  std::chrono::nanoseconds used_;
};

std::string thread_name() {
  char name[16] = "";
  (void)pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

// The first that takes a turn in its queue.
const CuStreamBody::Item* first_in_queue(const CuStreamBody& stream) {
  const auto found =
      std::ranges::find_if(stream.items, [](const auto& item) { return !item.copies; });
  return found == stream.items.end() ? nullptr : &*found;
}

bool has_kernel(const CuStreamBody& stream) {
  return std::ranges::any_of(stream.items, [](const auto& item) { return item.is_kernel(); });
}

}  // namespace

bool& fake_in_library() {
  static thread_local bool inside = false;
  return inside;
}

int FakeCuda::State::connections() const {
  if (options.connections > 0) return options.connections;
  const char* const value = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int wanted = value != nullptr ? std::atoi(value) : 0;
  if (wanted > 0) return std::min(wanted, max_connections);
  return options.mps ? connections_under_mps : connections_by_default;
}

CuStreamBody& FakeCuda::State::stream_of_thread() {
  auto& found = per_thread[{current(), std::this_thread::get_id()}];
  if (found != nullptr) return *found;
  found = std::make_unique<CuStreamBody>(CuStreamBody{current(), {}, nullptr});
  found->queue = streams_made++ % connections();
  streams.insert(found.get());
  return *found;
}

bool FakeCuda::State::wait_bounded(Lock& lock, const std::function<bool()>& over) {
  // When all is lost, nobody waits for long.
  if (!failure.empty()) return changed.wait_for(lock, lost_patience, over);
  for (const Patience patience(call_patience); !patience.is_over();)
    if (changed.wait_for(lock, glance, over)) return true;
  return over();
}

bool FakeCuda::State::has_kernels(int device) const {
  const auto is_there = [&](const CuStreamBody& stream) {
    return stream.owner != nullptr && stream.owner->device == device && has_kernel(stream);
  };
  return std::ranges::any_of(streams, [&](const CuStream stream) { return is_there(*stream); }) ||
         std::ranges::any_of(default_streams,
                             [&](const auto& one) { return is_there(one.second); });
}

bool FakeCuda::State::has_kernels() const {
  for (int device = 0; device < options.devices; ++device)
    if (has_kernels(device)) return true;
  return false;
}

void FakeCuda::State::wait_for_kernels(Lock& lock, int device, std::string_view call) {
  if (fake_in_library() && has_kernels())
    ++synchronising[fmt::format("{} by {}", call, thread_name())];
  if (!options.harsh) return;
  enter(lock);
  kept_out = true;
  const auto is_near = [&](int other) {
    const auto reaches = [&](int from, int to) {
      return contexts[static_cast<std::size_t>(from)].peers.contains(to);
    };
    return other == device || reaches(device, other) || reaches(other, device);
  };
  const auto rests = [&] {
    for (int other = 0; other < options.devices; ++other)
      if (is_near(other) && has_kernels(other)) return false;
    return true;
  };
  if (!wait_bounded(lock, rests))
    fail(fmt::format("{} by {} waited for kernels that did not end", call, thread_name()));
  kept_out = false;
  changed.notify_all();
}

void FakeCuda::State::enter(Lock& lock) {
  if (!options.harsh) return;
  if (!wait_bounded(lock, [this] { return !kept_out; }))
    fail("a call of " + thread_name() + " waited for somebody who waits in the driver");
}

// Until it is empty, or all is lost.
void FakeCuda::State::await_stream(Lock& lock, const CuStreamBody& stream) {
  const auto over = [&] { return stream.items.empty() || !failure.empty(); };
  if (!options.harsh) return changed.wait(lock, over);
  for (std::uint64_t seen = items_done - 1; seen != items_done;) {
    seen = items_done;
    for (const Patience patience(stream_patience); seen == items_done && !patience.is_over();)
      if (changed.wait_for(lock, glance, over)) return;
  }
  fail("no stream has gone on while " + thread_name() + " waited for one");
}

void FakeCuda::State::await_room(Lock& lock, const CuStreamBody& stream) {
  const auto count_in = [&](const CuStreamBody& one) {
    if (one.owner != stream.owner || one.queue != stream.queue) return std::ptrdiff_t{0};
    return std::ranges::count_if(one.items, [](const auto& item) { return item.is_kernel(); });
  };
  const auto has_room = [&] {
    std::ptrdiff_t before = 0;
    for (const CuStream one : streams) before += count_in(*one);
    for (const auto& [owner, one] : default_streams) before += count_in(one);
    return before < max_launches;
  };
  if (!options.harsh || has_room()) return;
  kept_out = true;
  if (!wait_bounded(lock, has_room))
    fail(fmt::format("a launch by {} found {} before it, and none ended", thread_name(),
                     max_launches));
  kept_out = false;
  changed.notify_all();
}

void FakeCuda::State::await_launched(Lock& lock, CuStream handle) {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (!options.harsh || value == nullptr || std::strcmp(value, "1") != 0) return;
  const CuStreamBody& launched = stream(handle);
  if (launched.capturing != nullptr) return;
  if (!wait_bounded(lock, [&] { return launched.items.empty(); }))
    fail("CUDA_LAUNCH_BLOCKING=1: a launch by " + thread_name() + " waited for ever");
}

bool FakeCuda::State::may_begin(const CuStreamBody& stream) const {
  const CuStreamBody::Item& item = stream.items.front();
  if (!options.harsh) return true;
  const bool is_default = &stream == &default_streams.at(stream.owner);
  const auto waits_for = [&](const CuStreamBody& other, bool other_is_default) {
    if (&other == &stream || other.owner != stream.owner || other.items.empty()) return false;
    const bool is_barrier = (is_default && other.blocking) || (other_is_default && stream.blocking);
    if (is_barrier && other.items.front().number < item.number) return true;
    if (item.copies || other.queue != stream.queue) return false;
    const CuStreamBody::Item* const first = first_in_queue(other);
    return first != nullptr && first->number < item.number;
  };
  const CuStreamBody& of_owner = default_streams.at(stream.owner);
  return !waits_for(of_owner, true) &&
         std::ranges::none_of(streams, [&](const CuStream one) { return waits_for(*one, false); });
}

// Pinned memory is everybody's. cuCtxEnablePeerAccess opens what cuMemAlloc gave and no more; what
// is mapped says itself whose it is.
void FakeCuda::State::check_reach(int device, const void* place) {
  const std::lock_guard lock(mutex);
  const auto* const found = find(reinterpret_cast<std::uint64_t>(place));
  if (found == nullptr || found->second.on_host || found->second.device == device) return;
  const Allocation& there = found->second;
  const bool reaches =
      there.mapped != 0
          ? there.reached_by.contains(device)
          : !there.of_pool && there.imported == 0 &&
                contexts[static_cast<std::size_t>(device)].peers.contains(there.device);
  if (!reaches)
    fail(
        fmt::format("a kernel of device {} has touched memory of device {} that it does not reach: "
                    "CUDA_ERROR_ILLEGAL_ADDRESS",
                    device, there.device));
}

CuDevicePointer FakeCuda::allocate_from_pool(int device, std::size_t bytes) {
  void* place = nullptr;
  if (state_->allocate(&place, bytes, device, false) != cu::success) return 0;
  const std::lock_guard lock(state_->mutex);
  state_->memory.at(place).of_pool = true;
  return reinterpret_cast<CuDevicePointer>(place);
}

void* FakeCuda::allocate_managed(std::size_t bytes) {
  void* place = nullptr;
  if (state_->allocate(&place, bytes, 0, false) != cu::success) return nullptr;
  const std::lock_guard lock(state_->mutex);
  state_->memory.at(place).is_managed = true;
  return place;
}

void FakeCuda::free_from_pool(CuDevicePointer memory) {
  (void)state_->release(reinterpret_cast<void*>(memory), false);
}

int FakeCuda::exports_of_parts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->exports_of_parts;
}

int FakeCuda::synchronising_calls() const {
  const std::lock_guard lock(state_->mutex);
  int all = 0;
  for (const auto& [call, count] : state_->synchronising) all += count;
  return all;
}

std::string FakeCuda::synchronising_shown() const {
  const std::lock_guard lock(state_->mutex);
  std::string all;
  for (const auto& [call, count] : state_->synchronising)
    all += fmt::format("{} x {}; ", count, call);
  return all;
}

}  // namespace gyre::tests
