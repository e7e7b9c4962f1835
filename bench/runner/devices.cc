// Devices: see devices.h.
#include "bench/runner/devices.h"

#include "bench/runner/gyre_calls.h"
#include "lib/base/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

namespace gyre::bench {
namespace {

// A communicator of one rank that is told nothing says what the library would do.
Result<bool> library_takes_devices() {
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  GYRE_TRY(checked(gyreGetUniqueId(&id), "gyreGetUniqueId"));
  GYRE_TRY(checked(gyreCommInitRank(&comm, 1, id, 0), "gyreCommInitRank"));
  int device = GYRE_DEVICE_HOST;
  Status asked = checked(gyreCommCuDevice(comm, &device), "gyreCommCuDevice");
  (void)gyreCommDestroy(comm);
  GYRE_TRY(std::move(asked));
  return device != GYRE_DEVICE_HOST;
}

}  // namespace

Result<std::unique_ptr<const loaded::CudaDriver>> machine_driver() {
  return loaded::load_cuda(loaded::CudaPresence::wanted);
}

Result<std::unique_ptr<Devices>> Devices::find(DeviceKind wanted, const DriverSource& source) {
  if (wanted == DeviceKind::host) return std::unique_ptr<Devices>();
  // Each rank has two streams here, and kernels of ranks that wait for each other must not share a
  // queue. The driver makes eight queues unless it is told so before it begins; 32 are its most.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  auto driver = source();
  const bool asked = wanted == DeviceKind::cuda;
  if (!driver.ok() && asked)
    return std::move(driver).status().while_doing("--device cuda (--device host needs none)");
  if (!driver.ok()) return std::unique_ptr<Devices>();
  if (!asked) {
    GYRE_ASSIGN(const bool takes, library_takes_devices());
    if (!takes) return std::unique_ptr<Devices>();
  }
  int count = 0;
  GYRE_TRY((*driver)->check((*driver)->device_count(&count), "cuDeviceGetCount"));
  if (count < 1) return invalid_usage("--device cuda: the driver shows no device");
  return std::unique_ptr<Devices>(new Devices(std::move(driver).value(), count));
}

Result<DeviceFacts> Devices::facts(int number) const {
  DeviceFacts facts;
  facts.ordinal = number % count_;
  loaded::CuDevice device = 0;
  GYRE_TRY(driver_->check(driver_->device_get(&device, facts.ordinal), "cuDeviceGet"));
  char text[128] = {};
  GYRE_TRY(driver_->check(driver_->device_name(text, sizeof text, device), "cuDeviceGetName"));
  facts.name = text;
  GYRE_TRY(
      driver_->check(driver_->device_pci_bus_id(text, sizeof text, device), "cuDeviceGetPCIBusId"));
  // nccl-tests shows it without the function and in small messages.
  facts.bus = std::string(text).substr(0, sizeof "0000:00:00" - 1);
  std::ranges::transform(facts.bus, facts.bus.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  loaded::CuUuid uuid{};
  GYRE_TRY(driver_->check(driver_->device_uuid(&uuid, device), "cuDeviceGetUuid"));
  for (const unsigned char byte : uuid.bytes) facts.uuid += fmt::format("{:02x}", byte);
  int shares = 0;  // an older driver does not say
  facts.shares_by_mps =
      driver_->device_attribute(&shares, loaded::cu::mps_enabled, device) == loaded::cu::success &&
      shares == 1;
  return facts;
}

Result<std::unique_ptr<Memory>> Devices::memory(int ordinal) const {
  return device_memory(*driver_, ordinal);
}

Result<int> first_device(int absent) {
  const char* text = tests_variable("DEVICE");
  if (text == nullptr) return absent;
  Result<std::int64_t> number = parse_integer(text, 0, 1 << 20);
  if (!number.ok()) return std::move(number).status().while_doing("GYRE_TESTS_DEVICE");
  return static_cast<int>(*number);
}

}  // namespace gyre::bench
