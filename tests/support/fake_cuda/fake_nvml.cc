#include "tests/support/fake_cuda/fake_nvml.h"

#include "lib/loaded/cuda.h"

#include <fmt/core.h>

#include <cstring>

namespace gyre::loaded {

struct NvmlDeviceBody {
  int gpu = 0;
};

}  // namespace gyre::loaded

namespace gyre::tests {

using namespace loaded;

struct FakeNvml::State {
  FakeNvmlOptions options;
  std::vector<NvmlDeviceBody> devices;
};

namespace {

FakeNvml::State* nvml_fake = nullptr;

constexpr NvmlResult not_found = 6, invalid_argument_code = 2;

unsigned bus_of(int gpu) { return static_cast<unsigned>(gpu) + 16; }

// The GPU at the other end of a link: those with straight lanes in order, then the switch; -1: the
// switch, -2: nothing.
int end_of(const NvmlDeviceBody& device, unsigned link) {
  for (const NvmlDeviceBody& peer : nvml_fake->devices) {
    if (peer.gpu == device.gpu) continue;
    const unsigned lanes = nvml_fake->options.between(device.gpu, peer.gpu).lanes;
    if (link < lanes) return peer.gpu;
    link -= lanes;
  }
  return link < nvml_fake->options.switch_lanes(device.gpu) ? -1 : -2;
}

NvmlResult init() { return nvml::success; }
NvmlResult device_count(unsigned* count) {
  return *count = static_cast<unsigned>(nvml_fake->devices.size()), nvml::success;
}
NvmlResult device_by_index(unsigned index, NvmlDevice* device) {
  if (index >= nvml_fake->devices.size()) return invalid_argument_code;
  return *device = &nvml_fake->devices[index], nvml::success;
}
NvmlResult device_pci(NvmlDevice device, NvmlPciInfo* info) {
  *info = {};
  info->bus = bus_of(device->gpu);
  return nvml::success;
}
NvmlResult device_by_bus_id(const char* id, NvmlDevice* device) {
  for (NvmlDeviceBody& one : nvml_fake->devices)
    if (fmt::format("0000:{:02X}:00.0", bus_of(one.gpu)) == id)
      return *device = &one, nvml::success;
  return not_found;
}
NvmlResult device_uuid(NvmlDevice device, char* uuid, unsigned bytes) {
  const std::string name = shown(CuUuid{{0xfa, 0xce, static_cast<unsigned char>(device->gpu)}});
  if (name.size() >= bytes) return invalid_argument_code;
  std::memcpy(uuid, name.c_str(), name.size() + 1);
  return nvml::success;
}
NvmlResult p2p_status(NvmlDevice device, NvmlDevice peer, int, int* status) {
  const bool can = nvml_fake->options.between(device->gpu, peer->gpu).p2p;
  return *status = can ? nvml::p2p_ok : 5, nvml::success;
}
NvmlResult topology_between(NvmlDevice device, NvmlDevice peer, int* level) {
  return *level = nvml_fake->options.between(device->gpu, peer->gpu).level, nvml::success;
}
NvmlResult cuda_capability(NvmlDevice, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return nvml::success;
}
NvmlResult nvlink_state(NvmlDevice device, unsigned link, unsigned* on) {
  return *on = end_of(*device, link) > -2 ? nvml::enabled : 0, nvml::success;
}
NvmlResult nvlink_remote_type(NvmlDevice device, unsigned link, int* type) {
  *type = end_of(*device, link) >= 0 ? nvml::nvlink_to_gpu : nvml::nvlink_to_switch;
  return nvml::success;
}
NvmlResult nvlink_remote_pci(NvmlDevice device, unsigned link, NvmlPciInfo* info) {
  *info = {};
  info->bus = bus_of(end_of(*device, link));
  return nvml::success;
}

// Fields of C2C alone; each link carries 45,000 MB/s, and the last one is off.
NvmlResult field_values(NvmlDevice device, int count, loaded::NvmlFieldValue* values) {
  const unsigned links = nvml_fake->options.processor_lanes(device->gpu);
  for (int i = 0; i < count; ++i) {
    loaded::NvmlFieldValue& one = values[i];
    one.result = nvml::success;
    if (one.field == nvml::c2c_count)
      one.value.as_unsigned = links;
    else if (one.field == nvml::c2c_status && one.scope < links)
      one.value.as_unsigned = one.scope + 1 < links ? nvml::enabled : 0;
    else if (one.field == nvml::c2c_max_bandwidth && one.scope < links)
      one.value.as_unsigned = 45'000;
    else
      one.result = invalid_argument_code;
  }
  return nvml::success;
}

}  // namespace

FakeNvml::FakeNvml(FakeNvmlOptions options) : state_(std::make_unique<State>()) {
  for (const int gpu : options.gpus) state_->devices.push_back({gpu});
  state_->options = std::move(options);
  nvml_fake = state_.get();
}

FakeNvml::~FakeNvml() { nvml_fake = nullptr; }

std::unique_ptr<const Nvml> FakeNvml::table() const {
  auto table = std::make_unique<Nvml>();
  table->init = init;
  table->device_count = device_count;
  table->device_by_index = device_by_index;
  table->device_by_bus_id = device_by_bus_id;
  table->device_uuid = device_uuid;
  table->device_pci = device_pci;
  table->cuda_capability = cuda_capability;
  table->p2p_status = p2p_status;
  table->topology_between = topology_between;
  table->nvlink_state = nvlink_state;
  table->nvlink_remote_type = nvlink_remote_type;
  table->nvlink_remote_pci = nvlink_remote_pci;
  table->field_values = field_values;
  return table;
}

}  // namespace gyre::tests
