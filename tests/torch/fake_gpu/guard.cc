#include "tests/torch/fake_gpu/guard.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>

namespace fake_gpu {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

std::atomic<int> devices{0};

Stream stream_of(int device, gyreStream_t handle) {
  return Stream(Stream::UNSAFE, Device(DeviceType::CUDA, static_cast<DeviceIndex>(device)),
                reinterpret_cast<c10::StreamId>(handle));
}

std::map<int, Stream>& current_streams() {
  static thread_local std::map<int, Stream> all;
  return all;
}

// A few for each device and priority, in turns, as c10/cuda keeps them.
Stream pooled(int device, bool is_high) {
  static std::mutex mutex;
  struct Pool {
    std::array<gyreStream_t, 8> streams{};
    std::size_t next = 0;
  };
  static auto* const pools = new std::map<std::pair<int, bool>, Pool>;
  const std::lock_guard lock(mutex);
  Pool& pool = (*pools)[{device, is_high}];
  gyreStream_t& stream = pool.streams[pool.next++ % pool.streams.size()];
  if (stream == nullptr) stream = gyreFakeStreamCreate(device);
  return stream_of(device, stream);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override {
    return Device(DeviceType::CUDA, static_cast<DeviceIndex>(gyreFakeGetDevice()));
  }
  void setDevice(Device device) const override { gyreFakeSetDevice(index_of(device)); }
  void uncheckedSetDevice(Device device) const noexcept override { setDevice(device); }
  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(device_count());
  }

  Stream getStream(Device device) const override { return current_stream(index_of(device)); }
  Stream getDefaultStream(Device device) const override {
    return stream_of(index_of(device), nullptr);
  }
  Stream getNewStream(Device device, int priority) const override {
    return pooled(index_of(device), priority < 0);
  }
  Stream getStreamFromGlobalPool(Device device, bool is_high) const override {
    return pooled(index_of(device), is_high);
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream before = current_stream(stream.device_index());
    current_streams().insert_or_assign(stream.device_index(), stream);
    return before;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return handle_of(stream); }
  bool queryStream(const Stream& stream) const override {
    return gyreFakeStreamQuery(handle_of(stream), stream.device_index()) != 0;
  }
  void synchronizeStream(const Stream& stream) const override {
    gyreFakeStreamSynchronize(handle_of(stream), stream.device_index());
  }
  void synchronizeDevice(const DeviceIndex device) const override {
    gyreFakeDeviceSynchronize(device);
  }
  bool isStreamCapturing(const Stream& stream) const override {
    return gyreFakeIsCapturing(handle_of(stream)) != 0;
  }

  void record(void** event, const Stream& stream, const DeviceIndex device,
              const c10::EventFlag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "an event of device ", device,
                " is recorded on device ", stream.device_index());
    if (*event == nullptr) *event = gyreFakeEventCreate(stream.device_index());
    gyreFakeEventRecord(static_cast<gyreFakeEvent_t>(*event), handle_of(stream),
                        stream.device_index());
  }
  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) return;
    gyreFakeStreamWait(handle_of(stream), stream.device_index(),
                       static_cast<gyreFakeEvent_t>(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || gyreFakeEventQuery(static_cast<gyreFakeEvent_t>(event)) != 0;
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (event != nullptr) gyreFakeEventDestroy(static_cast<gyreFakeEvent_t>(event));
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

int index_of(c10::Device device) {
  return device.has_index() ? device.index() : gyreFakeGetDevice();
}

c10::Stream current_stream(int device) {
  const auto found = current_streams().find(device);
  return found != current_streams().end() ? found->second : stream_of(device, nullptr);
}

int device_count() { return devices.load(); }

void start(int count) {
  gyreFakeStart(count);
  devices.store(count);
}

}  // namespace fake_gpu
