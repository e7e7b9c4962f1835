// What NVIDIA's driver does to who is not careful, by the fake at its harshest: memory that other
// devices' kernels do not reach, calls that wait for kernels and keep everybody out meanwhile,
// streams that share a queue, and what the default stream waits for.
#include "tests/support/cuda_cases.h"

#include <chrono>
#include <future>

using namespace gyre;
using namespace gyre::tests;
namespace cu = gyre::loaded::cu;

namespace {

FakeCudaOptions harsh(FakeCudaOptions options = {}) {
  options.harsh = true;
  return options;
}

// A rank on each of two GPUs, in one process, that lend wherever they may.
class TwoGpus {
 public:
  static constexpr std::size_t count = 5000;

  TwoGpus() : on(harsh({.devices = 2}), {{"GYRE_PROTO", "Direct"}}), ranks_(on, 2, 2) {
    INFO(last_error());
    REQUIRE(ranks_.begun == gyreSuccess);
    contexts_[0] = on.owner;
    REQUIRE(on.driver->primary_retain(&contexts_[1], 1) == cu::success);
    const loaded::CurrentContext scope(*on.driver, contexts_[1]);
    REQUIRE(on.driver->stream_create(&far_, cu::stream_non_blocking) == cu::success);
  }
  ~TwoGpus() {
    (void)on.driver->stream_destroy(far_);
    (void)on.driver->primary_release(1);
  }

  // Sums what lies there; the memory is the host's as well.
  void check_sum(const std::vector<std::int32_t*>& data) {
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t i = 0; i < count; ++i) data[rank][i] = brought(static_cast<int>(rank), i);
    REQUIRE(ranks_.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
      std::int32_t* const at = data[static_cast<std::size_t>(rank)];
      return gyreAllReduce(at, at, count, gyreInt32, gyreSum, comm,
                           rank == 0 ? stream : reinterpret_cast<gyreStream_t>(far_));
    }) == gyreSuccess);
    REQUIRE(on.driver->stream_synchronize(ranks_.streams[0]) == cu::success);
    REQUIRE(on.driver->stream_synchronize(far_) == cu::success);
    std::size_t wrong = 0;
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t i = 0; i < count; ++i) wrong += data[rank][i] != sum_of_all(2, i);
    CHECK(wrong == 0);
  }
  // Whether kernels of the rank have told the other one of a buffer.
  bool has_lent(std::size_t rank) const {
    const auto pin =
        comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(ranks_.comms[rank]));
    const exec::DeviceShape& shape = pin->device_side()->executor().shape();
    const exec::DeviceLink link = pin->device_side()->links().link({1 - static_cast<int>(rank), 0});
    const auto end = exec::send_end(shape, link, 0, cuda::DeviceProtocol::simple);
    return end.lent != nullptr && end.lent->region != 0;
  }
  loaded::CuContext context(int device) const { return contexts_[device]; }

  OnFake on;

 private:
  Ranks ranks_;
  loaded::CuContext contexts_[2] = {};
  loaded::CuStream far_ = nullptr;
};

std::int32_t* as_ints(loaded::CuDevicePointer memory) {
  return reinterpret_cast<std::int32_t*>(memory);
}

}  // namespace

TEST_CASE("other GPUs of a process are lent what cuMemAlloc and gyreMemAlloc gave", "[device]") {
  const bool is_gyres = GENERATE(false, true);
  TwoGpus two;
  std::vector<std::int32_t*> data;
  for (int device = 0; device < 2; ++device) {
    const loaded::CurrentContext scope(*two.on.driver, two.context(device));
    void* memory = nullptr;
    loaded::CuDevicePointer legacy = 0;
    if (is_gyres)
      REQUIRE(gyreMemAllocOn(&memory, TwoGpus::count * 4, device) == gyreSuccess);
    else
      REQUIRE(two.on.driver->allocate(&legacy, TwoGpus::count * 4) == cu::success);
    data.push_back(is_gyres ? static_cast<std::int32_t*>(memory) : as_ints(legacy));
  }
  for (int i = 0; i < 3; ++i) two.check_sum(data);
  CHECK(two.has_lent(0));
  CHECK(two.on.fake.failure() == "");
  for (std::int32_t* one : data)
    if (is_gyres)
      CHECK(gyreMemFree(one) == gyreSuccess);
    else
      CHECK(two.on.driver->free(reinterpret_cast<loaded::CuDevicePointer>(one)) == cu::success);
}

TEST_CASE("what another GPU's kernels do not reach is copied, though it be lent to none",
          "[device]") {
  TwoGpus two;
  std::vector<std::int32_t*> data;
  for (int device = 0; device < 2; ++device)
    data.push_back(as_ints(two.on.fake.allocate_from_pool(device, TwoGpus::count * 4)));
  for (int i = 0; i < 3; ++i) two.check_sum(data);
  CHECK(!two.has_lent(0));
  CHECK(two.on.fake.failure() == "");
  for (std::int32_t* one : data)
    two.on.fake.free_from_pool(reinterpret_cast<loaded::CuDevicePointer>(one));
}
