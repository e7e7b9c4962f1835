// The Python module fake_gpu._C: the fake's devices, and functions that only a test may use.
#include "tests/torch/fake_gpu/guard.h"
#include "tests/torch/fake_gpu/memory.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/csrc/utils/pybind.h>

namespace fake_gpu {
namespace {

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(gyreFakeGetDevice());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { gyreFakeSetDevice(device); }
};

// DDP asks for one where its parameters are; the host's time will do.
struct Timer final : c10d::Timer {
  explicit Timer(c10::Device) {}
  std::optional<std::int64_t> measureDifference(Event start, Event end) override {
    const std::optional<std::int64_t> first = getTimestamp(start), last = getTimestamp(end);
    if (!first || !last) return std::nullopt;
    return *last - *first;
  }
};

}  // namespace
}  // namespace fake_gpu

namespace c10d {
using CudaTimer = fake_gpu::Timer;
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, CudaTimer)
}  // namespace c10d

namespace at {
using fake_gpu::Hooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, Hooks)
}  // namespace at

PYBIND11_MODULE(_C, module) {
  using fake_gpu::current_stream;
  using fake_gpu::handle_of;
  const auto without_gil = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def("start", fake_gpu::start, without_gil);
  module.def("device_count", fake_gpu::device_count);
  module.def("close_gate", [](int device) {
    const c10::Stream stream = current_stream(device);
    return reinterpret_cast<std::uintptr_t>(gyreFakeGateClose(handle_of(stream), device));
  });
  module.def("open_gate",
             [](std::uintptr_t gate) { gyreFakeGateOpen(reinterpret_cast<void*>(gate)); });
  module.def("is_idle", [](int device) {
    return gyreFakeStreamQuery(handle_of(current_stream(device)), device) != 0;
  });
  module.def("begin_capture",
             [](int device) { gyreFakeCaptureBegin(handle_of(current_stream(device))); });
  module.def("end_capture", [](int device) {
    return reinterpret_cast<std::uintptr_t>(gyreFakeCaptureEnd(handle_of(current_stream(device))));
  });
  module.def("launch_graph", [](std::uintptr_t graph, int device) {
    gyreFakeGraphLaunch(reinterpret_cast<gyreFakeGraph_t>(graph),
                        handle_of(current_stream(device)));
  });
  module.def("destroy_graph", [](std::uintptr_t graph) {
    gyreFakeGraphDestroy(reinterpret_cast<gyreFakeGraph_t>(graph));
  });
  // What lies there now, whatever streams have still to do.
  module.def("peek", [](const at::Tensor& tensor) {
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                         tensor.options().device(c10::kCPU))
        .clone();
  });
  module.def("failure", [] { return std::string(gyreFakeFailure()); });
}
