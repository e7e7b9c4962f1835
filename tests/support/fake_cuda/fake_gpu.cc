#include "tests/support/fake_cuda/fake_gpu.h"

#include "lib/comm/process.h"
#include "tests/support/fake_cuda/fake_cuda_state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

using namespace gyre;
using gyre::tests::fake;
using gyre::tests::FakeCuda;

namespace {

// For good: threads of the program may use it until the process ends.
FakeCuda* machine = nullptr;
const loaded::CudaDriver* driver = nullptr;

void expect(loaded::CuResult result, const char* call) {
  if (result == loaded::cu::success) return;
  const std::string why = machine != nullptr ? machine->failure() : "";
  std::fprintf(stderr, "fake_gpu: %s gave %d %s\n", call, static_cast<int>(result), why.c_str());
  std::abort();
}

loaded::CuContext context_of(int device) {
  return &fake->contexts[static_cast<std::size_t>(device)];
}

// The thread's device is this one while it lives: default streams are the current device's.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(FakeCuda::State::current()) {
    FakeCuda::State::current() = context_of(device);
  }
  ~OnDevice() { FakeCuda::State::current() = before_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  loaded::CuContext before_;
};

loaded::CuStream body_of(gyreStream_t stream) { return reinterpret_cast<loaded::CuStream>(stream); }
loaded::CuEvent body_of(gyreFakeEvent_t event) { return reinterpret_cast<loaded::CuEvent>(event); }

// Freed memory by device and bytes, for good; under the fake's mutex.
auto* const idle = new std::map<std::pair<int, std::size_t>, std::vector<void*>>;
std::size_t pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// What is left of the memory that each device's allocator took at the start, as the driver may make
// whoever asks for more wait for kernels, and these for what the asker does next.
struct Segment {
  std::byte* next = nullptr;
  std::size_t bytes = 0;
};
constexpr std::size_t segment_bytes = 64 << 20;
auto* const segments = new std::map<int, Segment>;

std::byte* take_memory(std::size_t bytes) {
  loaded::CuDevicePointer memory = 0;
  expect(driver->allocate(&memory, bytes), "allocating");
  return reinterpret_cast<std::byte*>(memory);
}

struct Gate {
  bool is_open = false;  // under the fake's mutex
};

}  // namespace

void gyreFakeStart(int devices) {
  tests::FakeCudaOptions options;
  options.devices = devices;
  machine = new FakeCuda(options);
  driver = machine->table().release();
  comm::process().use_cuda(machine->library_table(), FakeCuda::images());
  for (int device = 0; device < devices; ++device) {
    const OnDevice there(device);
    (*segments)[device] = {take_memory(segment_bytes), segment_bytes};
  }
}

int gyreFakeGetDevice(void) {
  const loaded::CuContext now = FakeCuda::State::current();
  return now == nullptr ? 0 : now->device;
}

void gyreFakeSetDevice(int device) { FakeCuda::State::current() = context_of(device); }

void* gyreFakeAllocate(int device, size_t bytes) {
  const OnDevice there(device);
  {
    const std::lock_guard lock(fake->mutex);
    std::vector<void*>& list = (*idle)[{device, pages(bytes)}];
    if (!list.empty()) {
      void* const found = list.back();
      list.pop_back();
      return found;
    }
    Segment& segment = (*segments)[device];
    if (pages(bytes) <= segment.bytes) {
      segment.bytes -= pages(bytes);
      return std::exchange(segment.next, segment.next + pages(bytes));
    }
  }
  return take_memory(pages(bytes));
}

void gyreFakeFree(void* memory, size_t bytes, gyreStream_t stream, int device) {
  const OnDevice there(device);
  fake->queue(body_of(stream), {[=] {
                                  std::memset(memory, 0xdd, bytes);
                                  (*idle)[{device, pages(bytes)}].push_back(memory);
                                  return true;
                                },
                                {},
                                false});
}

gyreStream_t gyreFakeStreamCreate(int device) {
  const OnDevice there(device);
  loaded::CuStream stream = nullptr;
  expect(driver->stream_create(&stream, loaded::cu::stream_non_blocking), "making a stream");
  return reinterpret_cast<gyreStream_t>(stream);
}

int gyreFakeStreamQuery(gyreStream_t stream, int device) {
  const OnDevice there(device);
  const std::lock_guard lock(fake->mutex);
  return fake->stream(body_of(stream)).items.empty() ? 1 : 0;
}

void gyreFakeStreamSynchronize(gyreStream_t stream, int device) {
  const OnDevice there(device);
  expect(driver->stream_synchronize(body_of(stream)), "synchronising a stream");
}

void gyreFakeDeviceSynchronize(int device) {
  const OnDevice there(device);
  std::unique_lock lock(fake->mutex);
  fake->changed.wait(lock, [&] {
    return fake->stream(nullptr).items.empty() &&
           std::ranges::all_of(fake->streams, [&](loaded::CuStream stream) {
             return stream->owner != context_of(device) || stream->items.empty();
           });
  });
}

void gyreFakeStreamCall(gyreStream_t stream, int device, void (*function)(void*), void* user) {
  const OnDevice there(device);
  fake->queue(body_of(stream), {[=] { return function(user), true; }, {}, false});
}

gyreFakeEvent_t gyreFakeEventCreate(int device) {
  const OnDevice there(device);
  loaded::CuEvent event = nullptr;
  expect(driver->event_create(&event, 0), "making an event");
  return reinterpret_cast<gyreFakeEvent_t>(event);
}

void gyreFakeEventDestroy(gyreFakeEvent_t event) {
  expect(driver->event_destroy(body_of(event)), "destroying an event");
}

void gyreFakeEventRecord(gyreFakeEvent_t event, gyreStream_t stream, int device) {
  const OnDevice there(device);
  expect(driver->event_record(body_of(event), body_of(stream)), "recording an event");
}

void gyreFakeStreamWait(gyreStream_t stream, int device, gyreFakeEvent_t event) {
  const OnDevice there(device);
  expect(driver->stream_wait_event(body_of(stream), body_of(event), 0), "waiting for an event");
}

int gyreFakeEventQuery(gyreFakeEvent_t event) {
  const loaded::CuResult result = driver->event_query(body_of(event));
  if (result != loaded::cu::not_ready) expect(result, "asking an event");
  return result == loaded::cu::success ? 1 : 0;
}

void* gyreFakeGateClose(gyreStream_t stream, int device) {
  const OnDevice there(device);
  auto* const gate = new Gate;
  fake->queue(body_of(stream), {[gate] {
                                  const bool passes = gate->is_open;
                                  if (passes) delete gate;
                                  return passes;
                                },
                                {},
                                false});
  return gate;
}

void gyreFakeGateOpen(void* gate) {
  const std::lock_guard lock(fake->mutex);
  static_cast<Gate*>(gate)->is_open = true;
  fake->changed.notify_all();
}

void gyreFakeCaptureBegin(gyreStream_t stream) {
  expect(driver->stream_begin_capture(body_of(stream), loaded::cu::capture_global), "a capture");
}

int gyreFakeIsCapturing(gyreStream_t stream) {
  if (stream == nullptr) return 0;
  const std::lock_guard lock(fake->mutex);
  return body_of(stream)->capturing != nullptr ? 1 : 0;
}

gyreFakeGraph_t gyreFakeCaptureEnd(gyreStream_t stream) {
  loaded::CuGraph graph = nullptr;
  loaded::CuGraphRun run = nullptr;
  expect(driver->stream_end_capture(body_of(stream), &graph), "the end of a capture");
  expect(driver->graph_instantiate(&run, graph, 0), "making a graph ready");
  expect(driver->graph_destroy(graph), "destroying a graph");
  return reinterpret_cast<gyreFakeGraph_t>(run);
}

void gyreFakeGraphLaunch(gyreFakeGraph_t graph, gyreStream_t stream) {
  expect(driver->graph_launch(reinterpret_cast<loaded::CuGraphRun>(graph), body_of(stream)),
         "launching a graph");
}

void gyreFakeGraphDestroy(gyreFakeGraph_t graph) {
  expect(driver->graph_run_destroy(reinterpret_cast<loaded::CuGraphRun>(graph)),
         "destroying a graph");
}

const char* gyreFakeFailure(void) {
  static thread_local std::string text;
  text = machine->failure();
  return text.c_str();
}
