// libgyre.so as users load it, with or without GPU images, on a machine without a CUDA driver: it
// loads and works on host memory, and a call that asks for a device says what is missing.
#include "tests/support/catch.h"
#include <gyre/gyre.h>

#include <dlfcn.h>
#include <link.h>
#include <string>

namespace no_driver_test {

namespace {

bool has_driver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) return false;
  WARN("there is an NVIDIA driver here: the case without one was not tried");
  dlclose(driver);
  return true;
}

std::string last_error() { return gyreGetLastError(nullptr); }

int note_cuda(dl_phdr_info* info, std::size_t, void* found) {
  const std::string name = info->dlpi_name;
  if (name.find("libcuda") != name.npos) static_cast<std::string*>(found)->append(name);
  return 0;
}

}  // namespace

TEST_CASE("the library brings no library of CUDA's into a process", "[no_driver]") {
  int version = 0;
  REQUIRE(gyreGetVersion(&version) == gyreSuccess);
  std::string loaded;
  dl_iterate_phdr(note_cuda, &loaded);
  CHECK(loaded == "");
}

TEST_CASE("a device is refused by the name of the library that is missing", "[no_driver]") {
  if (has_driver()) return;
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = 0;
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidUsage);
  CHECK(comm == nullptr);
  INFO(last_error());
  CHECK(last_error().find("config.device = 0") != std::string::npos);
  CHECK(last_error().find("libcuda.so.1 was not found: no NVIDIA driver here") !=
        std::string::npos);
  const int list[] = {0};
  CHECK(gyreCommInitAll(&comm, 1, list) == gyreInvalidUsage);
  CHECK(last_error().find("libcuda.so.1 was not found") != std::string::npos);
  void* memory = nullptr;
  CHECK(gyreMemAllocOn(&memory, 100, 0) == gyreInvalidUsage);
  CHECK(last_error().find("libcuda.so.1 was not found") != std::string::npos);
  CHECK(memory == nullptr);
}

TEST_CASE("who asks for no device works on host memory", "[no_driver]") {
  if (has_driver()) return;
  gyreComm_t comm = nullptr;
  REQUIRE(gyreCommInitAll(&comm, 1, nullptr) == gyreSuccess);
  int device = 0;
  CHECK(gyreCommCuDevice(comm, &device) == gyreSuccess);
  CHECK(device == GYRE_DEVICE_HOST);
  void* memory = nullptr;
  REQUIRE(gyreMemAlloc(&memory, sizeof(float)) == gyreSuccess);
  float& sum = *static_cast<float*>(memory);
  const float one = 1.5F;
  CHECK(gyreAllReduce(&one, &sum, 1, gyreFloat32, gyreSum, comm, nullptr) == gyreSuccess);
  CHECK(sum == 1.5F);
  CHECK(gyreMemFree(memory) == gyreSuccess);
  CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

}  // namespace no_driver_test
