// A CUDA device's memory, through the driver alone, in its primary context, which the library uses
// too. The host accesses it through a pinned tile that is copied on a stream of its own.
#include "bench/runner/memory.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::bench {
namespace {

using loaded::CuDevicePointer;
using loaded::CurrentContext;
using loaded::CuStream;
namespace cu = loaded::cu;

constexpr std::uint64_t tile_bytes = 8 << 20;

CuDevicePointer device_pointer(const std::byte* place) {
  return reinterpret_cast<CuDevicePointer>(place);
}
CuStream native(gyreStream_t stream) { return reinterpret_cast<CuStream>(stream); }

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(const loaded::CudaDriver& driver, int ordinal)
      : driver_(driver), ordinal_(ordinal) {}
  ~DeviceMemory() override;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  Status open();

  Result<std::byte*> allocate(std::uint64_t bytes) override;
  void release(std::byte* memory) override;
  Status read(const std::byte* place, std::uint64_t bytes, const Look& act) override;
  Status write(std::byte* place, std::uint64_t bytes, const Make& act) override;
  Result<gyreStream_t> make_stream() override;
  void destroy_stream(gyreStream_t stream) override;
  Status synchronize(gyreStream_t stream) override;
  Status begin_capture(gyreStream_t stream) override;
  Result<Replay> end_capture(gyreStream_t stream) override;
  Status launch(const Replay& replay, gyreStream_t stream) override;
  void destroy(const Replay& replay) override;
  Room room() const override;
  std::uint64_t used() const override {
    const Room now = room();
    return now.total - now.available;
  }
  std::uint64_t cache_bytes() const override;
  bool on_device() const override { return true; }

 private:
  Status check(loaded::CuResult result, const char* call) const {
    if (result == cu::success) [[likely]]
      return {};
    return driver_.check(result, fmt::format("{} on device {}", call, ordinal_));
  }

  const loaded::CudaDriver& driver_;
  const int ordinal_;
  loaded::CuDevice device_ = 0;
  loaded::CuContext owner_ = nullptr;
  CuStream copies_ = nullptr;
  void* tile_ = nullptr;  // pinned
};

DeviceMemory::~DeviceMemory() {
  if (owner_ == nullptr) return;
  {
    const CurrentContext scope(driver_, owner_);
    if (tile_ != nullptr) (void)driver_.free_host(tile_);
    if (copies_ != nullptr) (void)driver_.stream_destroy(copies_);
  }
  (void)driver_.primary_release(device_);
}

Status DeviceMemory::open() {
  GYRE_TRY(check(driver_.device_get(&device_, ordinal_), "cuDeviceGet"));
  GYRE_TRY(check(driver_.primary_retain(&owner_, device_), "cuDevicePrimaryCtxRetain"));
  const CurrentContext scope(driver_, owner_);
  GYRE_TRY(check(driver_.stream_create(&copies_, cu::stream_non_blocking), "cuStreamCreate"));
  return check(driver_.allocate_host(&tile_, tile_bytes, cu::host_alloc_portable),
               "cuMemHostAlloc");
}

Result<std::byte*> DeviceMemory::allocate(std::uint64_t bytes) {
  const CurrentContext scope(driver_, owner_);
  CuDevicePointer memory = 0;
  GYRE_TRY(driver_.check(driver_.allocate(&memory, bytes),
                         fmt::format("cuMemAlloc of {} bytes on device {}", bytes, ordinal_)));
  return reinterpret_cast<std::byte*>(memory);
}

void DeviceMemory::release(std::byte* memory) {
  const CurrentContext scope(driver_, owner_);
  (void)driver_.free(device_pointer(memory));
}

Status DeviceMemory::read(const std::byte* place, std::uint64_t bytes, const Look& act) {
  const CurrentContext scope(driver_, owner_);
  for (std::uint64_t offset = 0; offset < bytes; offset += tile_bytes) {
    const std::uint64_t count = std::min(tile_bytes, bytes - offset);
    GYRE_TRY(check(driver_.copy_to_host(tile_, device_pointer(place + offset), count, copies_),
                   "cuMemcpyDtoHAsync"));
    GYRE_TRY(check(driver_.stream_synchronize(copies_), "cuStreamSynchronize"));
    act(static_cast<const std::byte*>(tile_), offset, count);
  }
  return {};
}

Status DeviceMemory::write(std::byte* place, std::uint64_t bytes, const Make& act) {
  const CurrentContext scope(driver_, owner_);
  for (std::uint64_t offset = 0; offset < bytes; offset += tile_bytes) {
    const std::uint64_t count = std::min(tile_bytes, bytes - offset);
    act(static_cast<std::byte*>(tile_), offset, count);
    GYRE_TRY(check(driver_.copy_to_device(device_pointer(place + offset), tile_, count, copies_),
                   "cuMemcpyHtoDAsync"));
    GYRE_TRY(check(driver_.stream_synchronize(copies_), "cuStreamSynchronize"));
  }
  return {};
}

Result<gyreStream_t> DeviceMemory::make_stream() {
  const CurrentContext scope(driver_, owner_);
  CuStream stream = nullptr;
  GYRE_TRY(check(driver_.stream_create(&stream, cu::stream_non_blocking), "cuStreamCreate"));
  return reinterpret_cast<gyreStream_t>(stream);
}

void DeviceMemory::destroy_stream(gyreStream_t stream) {
  const CurrentContext scope(driver_, owner_);
  (void)driver_.stream_destroy(native(stream));
}

Status DeviceMemory::synchronize(gyreStream_t stream) {
  const CurrentContext scope(driver_, owner_);
  return check(driver_.stream_synchronize(native(stream)), "cuStreamSynchronize");
}

// Threads capture at the same time, each its own ranks' streams.
Status DeviceMemory::begin_capture(gyreStream_t stream) {
  const CurrentContext scope(driver_, owner_);
  return check(driver_.stream_begin_capture(native(stream), cu::capture_thread_local),
               "cuStreamBeginCapture");
}

Result<Replay> DeviceMemory::end_capture(gyreStream_t stream) {
  const CurrentContext scope(driver_, owner_);
  loaded::CuGraph graph = nullptr;
  Replay replay;
  GYRE_TRY(check(driver_.stream_end_capture(native(stream), &graph), "cuStreamEndCapture"));
  Status made =
      check(driver_.graph_instantiate(&replay.run, graph, 0), "cuGraphInstantiateWithFlags");
  (void)driver_.graph_destroy(graph);
  GYRE_TRY(std::move(made));
  return replay;
}

Status DeviceMemory::launch(const Replay& replay, gyreStream_t stream) {
  const CurrentContext scope(driver_, owner_);
  return check(driver_.graph_launch(replay.run, native(stream)), "cuGraphLaunch");
}

void DeviceMemory::destroy(const Replay& replay) {
  const CurrentContext scope(driver_, owner_);
  if (replay.run != nullptr) (void)driver_.graph_run_destroy(replay.run);
}

Memory::Room DeviceMemory::room() const {
  const CurrentContext scope(driver_, owner_);
  std::size_t free = 0, total = 0;
  if (driver_.memory_info(&free, &total) != cu::success) return {};
  return {free, total};
}

std::uint64_t DeviceMemory::cache_bytes() const {
  int bytes = 0;
  const bool known =
      driver_.device_attribute(&bytes, cu::l2_cache_bytes, device_) == cu::success && bytes > 0;
  return known ? static_cast<std::uint64_t>(bytes) : std::uint64_t{64} << 20;
}

}  // namespace

Result<std::unique_ptr<Memory>> device_memory(const loaded::CudaDriver& driver, int ordinal) {
  auto made = std::make_unique<DeviceMemory>(driver, ordinal);
  GYRE_TRY(made->open());
  return std::unique_ptr<Memory>(std::move(made));
}

}  // namespace gyre::bench
