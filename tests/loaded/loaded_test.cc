// The function table of the CUDA driver, without a driver and with the fake; and the fake itself:
// its kernels can wait for each other although they are launched one after another.
#include "lib/loaded/cuda.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/kernels/device_job.h"

#include <chrono>
#include <set>
#include <thread>

namespace loaded_test {

using namespace gyre;
using namespace gyre::tests;
using loaded::CurrentContext;

namespace {

// One device of the fake, current in this thread.
struct OneDevice {
  explicit OneDevice(const FakeCudaOptions& options = {}) : fake(options), driver(fake.table()) {
    REQUIRE(driver->primary_retain(&owner, 0) == loaded::cu::success);
    REQUIRE(driver->set_current(owner) == loaded::cu::success);
  }
  ~OneDevice() {
    (void)driver->primary_release(0);
    (void)driver->set_current(nullptr);
  }
  FakeCuda fake;
  std::unique_ptr<const loaded::CudaDriver> driver;
  loaded::CuContext owner = nullptr;
};

}  // namespace

TEST_CASE("without a driver the error names the library that is missing", "[loaded]") {
  const auto driver = loaded::load_cuda(loaded::CudaPresence::wanted);
  if (driver.ok()) {
    WARN("there is an NVIDIA driver here: the case without one was not tried");
    return;
  }
  const std::string text(driver.status().message());
  INFO(text);
  CHECK(text.find("libcuda.so.1") != text.npos);
  CHECK(driver.status().code() == Code::InvalidUsage);
  CHECK_FALSE(loaded::load_cuda(loaded::CudaPresence::only_if_loaded).ok());
}

TEST_CASE("a driver that lacks a function is told by its version and the function's", "[loaded]") {
  FakeCuda fake({});
  loaded::CudaDriver driver;
  const auto find = [&](const char* symbol, int) -> void* {
    if (std::string(symbol) == "cuDeviceGetUuid") return nullptr;
    return reinterpret_cast<void*>(fake.table()->driver_version);
  };
  const Status old = find_cuda(driver, find);
  CHECK(old.code() == Code::InvalidUsage);
  CHECK(old.message() ==
        "libcuda.so.1 is the driver of CUDA 13.0 and has no cuDeviceGetUuid, which comes with CUDA "
        "11.4: update the NVIDIA driver");
}

TEST_CASE("what older drivers may lack is null, and no error", "[loaded]") {
  for (const bool is_there : {true, false}) {
    loaded::CudaDriver driver;
    const auto find = [&](const char* symbol, int) -> void* {
      static int anything = 0;
      return !is_there && std::string(symbol) == "cuLaunchKernelEx" ? nullptr : &anything;
    };
    CHECK(find_cuda(driver, find).ok());
    CHECK((driver.launch_with != nullptr) == is_there);
    CHECK(driver.launch != nullptr);
  }
}

TEST_CASE("an error of the driver is shown by its name, its number and its words", "[loaded]") {
  OneDevice one;
  one.fake.fail_allocation(2);
  loaded::CuDevicePointer memory[2] = {};
  REQUIRE(one.driver->check(one.driver->allocate(&memory[0], 100), "cuMemAlloc").ok());
  const Status failed = one.driver->check(one.driver->allocate(&memory[1], 100), "cuMemAlloc");
  CHECK(failed.code() == Code::UnhandledCudaError);
  CHECK(failed.message() == "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): as the fake says");
  CHECK(one.fake.leaks() == "1 allocations; 1 retained contexts; ");
  CHECK(one.driver->free(memory[0]) == loaded::cu::success);
  CHECK(one.fake.leaks() == "1 retained contexts; ");
}

TEST_CASE("pointers are known by allocation, freed ones no more", "[loaded]") {
  OneDevice one;
  loaded::CuDevicePointer memory = 0;
  void* pinned = nullptr;
  REQUIRE(one.driver->allocate(&memory, 100) == loaded::cu::success);
  REQUIRE(one.driver->allocate_host(&pinned, 64, 0) == loaded::cu::success);
  const auto inside = loaded::find_pointer(*one.driver, reinterpret_cast<void*>(memory + 99));
  REQUIRE(inside.ok());
  CHECK((inside->known && inside->on_device && inside->device == 0));
  CHECK(inside->range_begin == memory);
  CHECK(inside->range_bytes == 100);
  const auto beyond = loaded::find_pointer(*one.driver, reinterpret_cast<void*>(memory + 100));
  CHECK_FALSE(beyond->known);
  const auto host = loaded::find_pointer(*one.driver, pinned);
  CHECK((host->known && !host->on_device));
  CHECK(one.driver->free_host(pinned) == loaded::cu::success);
  CHECK(one.driver->free(memory) == loaded::cu::success);
  CHECK_FALSE(loaded::find_pointer(*one.driver, reinterpret_cast<void*>(memory))->known);
}

TEST_CASE("a library's device is the thread's no longer than its scope", "[loaded]") {
  OneDevice one({.devices = 2});
  loaded::CuContext other = nullptr, now = nullptr;
  REQUIRE(one.driver->primary_retain(&other, 1) == loaded::cu::success);
  {
    const CurrentContext scope(*one.driver, other);
    (void)one.driver->current(&now);
    CHECK(now == other);
  }
  (void)one.driver->current(&now);
  CHECK(now == one.owner);
  (void)one.driver->primary_release(1);
}

TEST_CASE("each kernel has a name, and each name one kernel", "[loaded]") {
  std::set<std::string> rows;
  for (int type = 0; type < element_type_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op) {
      const auto as_type = static_cast<ElementType>(type);
      const auto as_op = static_cast<ReduceOp>(op);
      const bool exists = cuda::find_kernel(cuda::DeviceProtocol::ll, as_type, as_op) != nullptr;
      const std::string row = cuda::kernel_row(as_type, as_op);
      CHECK(row.empty() != exists);
      if (exists) rows.insert(row);
    }
  std::set<std::string> imaged;
  for (const cuda::KernelImage& image : FakeCuda::images()) imaged.emplace(image.row);
  CHECK(rows == imaged);
}

TEST_CASE("ranks launched one after another meet on the fake's streams", "[loaded]") {
  const auto protocol =
      GENERATE(cuda::DeviceProtocol::simple, cuda::DeviceProtocol::ll, cuda::DeviceProtocol::ll128);
  OneDevice one;
  DeviceCase wanted;
  wanted.ranks = 3;
  wanted.protocol = protocol;
  wanted.in_place = true;
  DeviceJob job(wanted);
  loaded::CuModule module = nullptr;
  loaded::CuFunction kernel = nullptr;
  REQUIRE(one.driver->module_load(&module, "Float32_Sum") == loaded::cu::success);
  const std::string name = cuda::kernel_name(protocol, "Float32_Sum");
  REQUIRE(one.driver->module_function(&kernel, module, name.c_str()) == loaded::cu::success);
  loaded::CuStream streams[3] = {};
  for (auto& stream : streams)
    (void)one.driver->stream_create(&stream, loaded::cu::stream_non_blocking);
  for (int call = 0; call < 3; ++call) {
    job.begin();
    const auto grids = job.grids();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      void* parameters[] = {&job.launches()[rank]};
      REQUIRE(one.driver->launch(kernel, grids[rank].blocks, 1, 1, grids[rank].threads, 1, 1, 0,
                                 streams[rank], parameters, nullptr) == loaded::cu::success);
    }
    for (auto& stream : streams)
      REQUIRE(one.driver->stream_synchronize(stream) == loaded::cu::success);
    CHECK(job.compare() == "");
    CHECK(one.fake.failure() == "");
  }
  for (auto& stream : streams) (void)one.driver->stream_destroy(stream);
  (void)one.driver->module_unload(module);
}

}  // namespace loaded_test
