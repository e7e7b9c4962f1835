// Communicators of CUDA devices through the C API, over the fake driver: its kernels are the real
// ones, on the host's machine. Ranks are driven by one thread, in groups, on a stream each.
#include "lib/comm/process.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/ranks.h"
#include <gyre/gyre.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <thread>

using namespace gyre;
using namespace gyre::tests;

namespace {

std::string last_error(gyreComm_t comm = nullptr) { return gyreGetLastError(comm); }

bool mentions(const std::string& text, const std::string& word) {
  INFO(text);
  return text.find(word) != std::string::npos;
}

// The fake in place of the machine's driver. Small slots: its memory is the host's.
class OnFake {
 public:
  explicit OnFake(const FakeCudaOptions& options = {}, Variables variables = {})
      : fake(options), variables_(with_small_slots(std::move(variables))) {
    comm::process().use_cuda(fake.table(), FakeCuda::images());
    driver = fake.table();
    REQUIRE(driver->primary_retain(&owner, 0) == loaded::cu::success);
    REQUIRE(driver->set_current(owner) == loaded::cu::success);
  }
  ~OnFake() {
    (void)driver->set_current(nullptr);
    (void)driver->primary_release(0);
    comm::process().use_cuda(nullptr, {});
    CHECK(fake.failure() == "");
    CHECK(fake.leaks() == "");
  }

  FakeCuda fake;
  std::unique_ptr<const loaded::CudaDriver> driver;
  loaded::CuContext owner = nullptr;

 private:
  static Variables with_small_slots(Variables variables) {
    variables.emplace("GYRE_BUFFSIZE", "4096");
    return variables;
  }
  WithVariables variables_;
};

// Elements in memory of the current device, which the fake keeps where the host can look.
class DeviceInts {
 public:
  DeviceInts(const OnFake& on, std::size_t count) : driver_(*on.driver) {
    REQUIRE(driver_.allocate(&memory_, count * sizeof(std::int32_t)) == loaded::cu::success);
  }
  ~DeviceInts() { (void)driver_.free(memory_); }
  DeviceInts(DeviceInts&& other) noexcept
      : driver_(other.driver_), memory_(std::exchange(other.memory_, 0)) {}
  std::int32_t* data() const { return reinterpret_cast<std::int32_t*>(memory_); }

 private:
  const loaded::CudaDriver& driver_;
  loaded::CuDevicePointer memory_ = 0;
};

gyreConfig_t device_config(int device) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = device;
  config.maxCTAs = 2;
  return config;
}

// All ranks of a communicator, on devices in turn, with a stream each.
class Ranks {
 public:
  Ranks(OnFake& on, int count, int devices = 1, int timeout_ms = 0) : on_(on) {
    begun = begin(count, devices, timeout_ms);
    if (begun != gyreSuccess) return;
    for (int rank = 0; rank < count; ++rank) {
      loaded::CuStream stream = nullptr;
      REQUIRE(on_.driver->stream_create(&stream, 0) == loaded::cu::success);
      streams.push_back(stream);
    }
  }
  ~Ranks() {
    for (gyreComm_t comm : comms)
      if (comm != nullptr) CHECK(gyreCommDestroy(comm) == gyreSuccess);
    for (loaded::CuStream stream : streams) (void)on_.driver->stream_destroy(stream);
  }

  using Call = std::function<gyreResult_t(int rank, gyreComm_t comm, gyreStream_t stream)>;
  gyreResult_t call(const Call& one) {
    (void)gyreGroupStart();
    for (std::size_t rank = 0; rank < comms.size(); ++rank)
      (void)one(static_cast<int>(rank), comms[rank], stream(rank));
    return gyreGroupEnd();
  }
  gyreStream_t stream(std::size_t rank) const {
    return reinterpret_cast<gyreStream_t>(streams[rank]);
  }
  void synchronize() {
    for (loaded::CuStream one : streams)
      REQUIRE(on_.driver->stream_synchronize(one) == loaded::cu::success);
  }
  // Until the communicator has an error, or 10 s have passed.
  gyreResult_t await_error(std::size_t rank) {
    gyreResult_t found = gyreSuccess;
    for (int i = 0; i < 10000 && found == gyreSuccess; ++i) {
      (void)gyreCommGetAsyncError(comms[rank], &found);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return found;
  }

  std::vector<gyreComm_t> comms;
  std::vector<loaded::CuStream> streams;
  gyreResult_t begun = gyreSuccess;

 private:
  gyreResult_t begin(int count, int devices, int timeout_ms) {
    gyreUniqueId id;
    REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
    comms.assign(static_cast<std::size_t>(count), nullptr);
    (void)gyreGroupStart();
    gyreResult_t refused = gyreSuccess;
    for (int rank = 0; rank < count && refused == gyreSuccess; ++rank) {
      gyreConfig_t config = device_config(rank % devices);
      if (timeout_ms > 0) config.timeoutMs = timeout_ms;
      refused =
          gyreCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], count, id, rank, &config);
    }
    if (refused == gyreSuccess) return gyreGroupEnd();
    (void)gyreGroupEnd();
    return refused;
  }
  OnFake& on_;
};

// One collective of all ranks on fresh buffers; what was wrong.
struct Collective {
  const char* name;
  // Elements a rank brings and gets, in blocks, of n ranks.
  int brings, gets;  // -1: n blocks
  std::function<gyreResult_t(const void*, void*, std::size_t, gyreComm_t, gyreStream_t)> call;
  // Element i of what `rank` of n ranks gets; block is i / count.
  std::function<int(int n, int rank, std::size_t i, std::size_t count)> wanted;
  bool root_only = false;
};

int brought(int rank, std::size_t i) { return 1000 * (rank + 1) + static_cast<int>(i % 997); }

int sum_of_all(int n, std::size_t i) {
  int sum = 0;
  for (int rank = 0; rank < n; ++rank) sum += brought(rank, i);
  return sum;
}

std::vector<Collective> collectives() {
  const auto at = [](int rank, std::size_t block, std::size_t i, std::size_t count) {
    return brought(rank, block * count + i % count);
  };
  return {
      {"all_reduce", 1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreAllReduce(in, out, count, gyreInt32, gyreSum, comm, stream);
       },
       [](int n, int, std::size_t i, std::size_t) { return sum_of_all(n, i); }},
      {"reduce", 1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreReduce(in, out, count, gyreInt32, gyreSum, 0, comm, stream);
       },
       [](int n, int, std::size_t i, std::size_t) { return sum_of_all(n, i); }, true},
      {"broadcast", 1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreBroadcast(in, out, count, gyreInt32, 0, comm, stream);
       },
       [](int, int, std::size_t i, std::size_t) { return brought(0, i); }},
      {"reduce_scatter", -1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreReduceScatter(in, out, count, gyreInt32, gyreSum, comm, stream);
       },
       [](int n, int rank, std::size_t i, std::size_t count) {
         return sum_of_all(n, static_cast<std::size_t>(rank) * count + i);
       }},
      {"all_gather", 1, -1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreAllGather(in, out, count, gyreInt32, comm, stream);
       },
       [at](int, int, std::size_t i, std::size_t count) {
         return at(static_cast<int>(i / count), 0, i, count);
       }},
      {"all_to_all", -1, -1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreAlltoAll(in, out, count, gyreInt32, comm, stream);
       },
       [at](int, int rank, std::size_t i, std::size_t count) {
         return at(static_cast<int>(i / count), static_cast<std::size_t>(rank), i, count);
       }},
      {"gather", 1, -1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreGather(in, out, count, gyreInt32, 0, comm, stream);
       },
       [at](int, int, std::size_t i, std::size_t count) {
         return at(static_cast<int>(i / count), 0, i, count);
       },
       true},
      {"scatter", -1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreScatter(in, out, count, gyreInt32, 0, comm, stream);
       },
       [at](int, int rank, std::size_t i, std::size_t count) {
         return at(0, static_cast<std::size_t>(rank), i, count);
       }},
  };
}

void check_collective(OnFake& on, Ranks& ranks, const Collective& one, std::size_t count) {
  const int n = static_cast<int>(ranks.comms.size());
  const auto elements = [&](int blocks) {
    return count * static_cast<std::size_t>(blocks < 0 ? n : blocks);
  };
  std::vector<DeviceInts> in, out;
  for (int rank = 0; rank < n; ++rank) {
    in.emplace_back(on, elements(one.brings));
    out.emplace_back(on, elements(one.gets));
    for (std::size_t i = 0; i < elements(one.brings); ++i) in.back().data()[i] = brought(rank, i);
  }
  const gyreResult_t called = ranks.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    const auto at = static_cast<std::size_t>(rank);
    return one.call(in[at].data(), out[at].data(), count, comm, stream);
  });
  INFO(one.name << " of " << n << " ranks, " << count << " elements: " << last_error());
  REQUIRE(called == gyreSuccess);
  ranks.synchronize();
  for (int rank = 0; rank < (one.root_only ? 1 : n); ++rank) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < elements(one.gets); ++i)
      wrong += out[static_cast<std::size_t>(rank)].data()[i] != one.wanted(n, rank, i, count);
    INFO("rank " << rank);
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("every collective is right on one device, call after call", "[device]") {
  const int n = GENERATE(1, 2, 3, 4);
  OnFake on;
  Ranks ranks(on, n);
  INFO(last_error());
  REQUIRE(ranks.begun == gyreSuccess);
  for (const Collective& one : collectives())
    for (const std::size_t count : {std::size_t{1}, std::size_t{77}, std::size_t{5000}})
      check_collective(on, ranks, one, count);
  for (const Collective& one : collectives()) check_collective(on, ranks, one, 301);
}

TEST_CASE("every protocol and several channels give the same on a device", "[device]") {
  const std::string protocol = GENERATE("LL", "Simple", "Direct");
  OnFake on({}, {{"GYRE_PROTO", protocol}});
  Ranks ranks(on, 3);
  REQUIRE(ranks.begun == gyreSuccess);
  for (const Collective& one : collectives()) check_collective(on, ranks, one, 40000);
}

TEST_CASE("ranks on two devices reach each other's memory, or say why not", "[device]") {
  const bool reaches = GENERATE(true, false);
  OnFake on({.devices = 2, .peer_access = reaches});
  Ranks ranks(on, 2, 2);
  REQUIRE(ranks.begun == gyreSuccess);
  int device = -1;
  CHECK(gyreCommCuDevice(ranks.comms[1], &device) == gyreSuccess);
  CHECK(device == 1);
  DeviceInts buffer(on, 8);
  if (reaches) return;
  // Rank 1's memory is checked before anything else: it takes part with nothing.
  const gyreResult_t called = ranks.call([&](int, gyreComm_t comm, gyreStream_t) {
    return gyreAllReduce(nullptr, nullptr, 0, gyreInt32, gyreSum, comm, nullptr);
  });
  CHECK(called != gyreSuccess);
  CHECK(mentions(last_error(), "cannot reach the memory of device"));
}

TEST_CASE("nothing inside a call may wait for kernels, from the second call on", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  DeviceInts a(on, 1000), b(on, 1000);
  const auto call = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    auto* const data = rank == 0 ? a.data() : b.data();
    return gyreAllReduce(data, data, 1000, gyreInt32, gyreSum, comm, stream);
  };
  REQUIRE(ranks.call(call) == gyreSuccess);
  ranks.synchronize();
  const int before = on.fake.synchronising_calls(), allocated = on.fake.allocations();
  for (int i = 0; i < 20; ++i) REQUIRE(ranks.call(call) == gyreSuccess);
  ranks.synchronize();
  CHECK(on.fake.synchronising_calls() == before);
  CHECK(on.fake.allocations() == allocated);
}

TEST_CASE("what does not fit a device at one time is refused with the numbers", "[device]") {
  OnFake on({.multiprocessors = 8});  // one is spare: seven blocks, and a rank needs four
  Ranks ranks(on, 2);
  CHECK(ranks.begun == gyreInvalidUsage);
  CHECK(mentions(last_error(), "kernels may have 7 blocks at one time"));
  CHECK(mentions(last_error(), "at most 1 ranks"));
}

TEST_CASE("more ranks than streams run side by side are refused", "[device]") {
  OnFake on({}, {{"CUDA_DEVICE_MAX_CONNECTIONS", "2"}});
  Ranks ranks(on, 3);
  CHECK(ranks.begun == gyreInvalidUsage);
  CHECK(mentions(last_error(), "CUDA_DEVICE_MAX_CONNECTIONS to 3"));
}

TEST_CASE("memory and streams of the wrong kind are refused before anything moves", "[device]") {
  OnFake on({.devices = 2});
  Ranks ranks(on, 1);
  REQUIRE(ranks.begun == gyreSuccess);
  gyreComm_t comm = ranks.comms[0];
  DeviceInts good(on, 100);
  std::vector<std::int32_t> host(100);
  const auto refused = [&](void* buffer, std::size_t count, gyreStream_t stream,
                           const std::string& word) {
    CHECK(gyreAllReduce(buffer, buffer, count, gyreInt32, gyreSum, comm, stream) ==
          gyreInvalidArgument);
    CHECK(mentions(last_error(comm), word));
  };
  refused(host.data(), 100, nullptr, "host memory that CUDA does not know");
  refused(good.data(), 101, nullptr, "has 400 bytes, and the call needs 404");
  void* freed = nullptr;
  {
    DeviceInts gone(on, 100);
    freed = gone.data();
  }
  refused(freed, 100, nullptr, "it was freed, or never allocated");
  loaded::CuContext other = nullptr;
  REQUIRE(on.driver->primary_retain(&other, 1) == loaded::cu::success);
  {
    const loaded::CurrentContext scope(*on.driver, other);
    DeviceInts far(on, 100);
    refused(far.data(), 100, nullptr, "is memory of CUDA device 1");
    loaded::CuStream foreign = nullptr;
    REQUIRE(on.driver->stream_create(&foreign, 0) == loaded::cu::success);
    refused(good.data(), 100, reinterpret_cast<gyreStream_t>(foreign), "belongs to another device");
    (void)on.driver->stream_destroy(foreign);
  }
  (void)on.driver->primary_release(1);
  gyreStream_t host_stream = nullptr;
  REQUIRE(gyreStreamCreate(&host_stream) == gyreSuccess);
  refused(good.data(), 100, host_stream, "a host stream");
  CHECK(gyreStreamDestroy(host_stream) == gyreSuccess);
  CHECK(on.fake.launches() == 0);
  // None of it broke the communicator.
  CHECK(gyreAllReduce(good.data(), good.data(), 100, gyreInt32, gyreSum, comm, ranks.stream(0)) ==
        gyreSuccess);
  ranks.synchronize();
}

TEST_CASE("a host communicator refuses memory of a device where CUDA is used", "[device]") {
  OnFake on;
  gyreConfig_t config = device_config(GYRE_DEVICE_HOST);
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  REQUIRE(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreSuccess);
  DeviceInts device(on, 4);
  CHECK(gyreAllReduce(device.data(), device.data(), 4, gyreInt32, gyreSum, comm, nullptr) ==
        gyreInvalidArgument);
  CHECK(mentions(last_error(comm), "config.device = 0"));
  CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

TEST_CASE("a kernel that waits for a rank that does not come ends by its deadline", "[device]") {
  OnFake on;
  Ranks ranks(on, 2, 1, 300);
  DeviceInts a(on, 10), b(on, 10);
  const auto call = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    auto* const data = rank == 0 ? a.data() : b.data();
    return gyreAllReduce(data, data, 10, gyreInt32, gyreSum, comm, stream);
  };
  REQUIRE(ranks.call(call) == gyreSuccess);
  ranks.synchronize();
  CHECK(call(0, ranks.comms[0], ranks.stream(0)) == gyreSuccess);  // it is only on the stream
  CHECK(ranks.await_error(0) == gyreTimeout);
  CHECK(mentions(last_error(ranks.comms[0]), "from rank 1"));
  ranks.synchronize();
  CHECK(call(0, ranks.comms[0], ranks.stream(0)) == gyreTimeout);
}

TEST_CASE("an abort frees a kernel whose peer never comes within a second", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  DeviceInts a(on, 10), b(on, 10);
  const auto call = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    auto* const data = rank == 0 ? a.data() : b.data();
    return gyreAllReduce(data, data, 10, gyreInt32, gyreSum, comm, stream);
  };
  REQUIRE(ranks.call(call) == gyreSuccess);
  ranks.synchronize();
  REQUIRE(call(0, ranks.comms[0], ranks.stream(0)) == gyreSuccess);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(gyreCommAbort(ranks.comms[1]) == gyreSuccess);
  ranks.comms[1] = nullptr;
  ranks.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(took.count() < 3);
  CHECK(ranks.await_error(0) == gyreRemoteError);
  CHECK(gyreCommAbort(ranks.comms[0]) == gyreSuccess);
  ranks.comms[0] = nullptr;
}

TEST_CASE("ranks whose device calls differ are told both calls", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  DeviceInts a(on, 100), b(on, 100);
  const auto call = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    auto* const data = rank == 0 ? a.data() : b.data();
    return gyreAllReduce(data, data, 100, gyreInt32, gyreSum, comm, stream);
  };
  REQUIRE(ranks.call(call) == gyreSuccess);
  ranks.synchronize();
  REQUIRE(gyreAllReduce(a.data(), a.data(), 40, gyreInt32, gyreSum, ranks.comms[0],
                        ranks.stream(0)) == gyreSuccess);
  REQUIRE(gyreAllReduce(b.data(), b.data(), 41, gyreInt32, gyreSum, ranks.comms[1],
                        ranks.stream(1)) == gyreSuccess);
  CHECK(ranks.await_error(0) == gyreMismatch);
  CHECK(mentions(last_error(ranks.comms[0]), "40"));
  CHECK(mentions(last_error(ranks.comms[0]), "41"));
  ranks.synchronize();
}

TEST_CASE("want of memory at any allocation is an error, and nothing leaks", "[device]") {
  int allocations = 0;
  {
    OnFake on;
    Ranks ranks(on, 2);
    check_collective(on, ranks, collectives()[0], 100);
    allocations = on.fake.allocations();
  }
  REQUIRE(allocations > 4);
  for (int failing = 1; failing <= allocations - 4; ++failing) {  // four are the test's own
    OnFake on;
    on.fake.fail_allocation(failing);
    Ranks ranks(on, 2);
    INFO("allocation " << failing << " of " << allocations << ": " << last_error());
    CHECK(ranks.begun == gyreUnhandledCudaError);
    CHECK(mentions(last_error(), "CUDA_ERROR_OUT_OF_MEMORY"));
    for (gyreComm_t& comm : ranks.comms)
      if (comm != nullptr) (void)gyreCommAbort(std::exchange(comm, nullptr));
  }
}

TEST_CASE("splitting a communicator of a device gives one of the same device", "[device]") {
  OnFake on;
  Ranks ranks(on, 4);
  std::vector<gyreComm_t> halves(4, nullptr);
  REQUIRE(ranks.call([&](int rank, gyreComm_t comm, gyreStream_t) {
    return gyreCommSplit(comm, rank % 2, rank, &halves[static_cast<std::size_t>(rank)], nullptr);
  }) == gyreSuccess);
  std::swap(ranks.comms, halves);
  std::swap(ranks.comms[1], ranks.comms[2]);
  std::vector<gyreComm_t> odd(ranks.comms.begin() + 2, ranks.comms.end());
  ranks.comms.resize(2);
  check_collective(on, ranks, collectives()[0], 100);
  for (gyreComm_t comm : odd) CHECK(gyreCommDestroy(comm) == gyreSuccess);
  for (gyreComm_t comm : halves) CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

TEST_CASE("without a driver, or without kernels, a device is refused and named", "[device]") {
  gyreConfig_t config = device_config(0);
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  if (!loaded::load_cuda(loaded::CudaPresence::wanted).ok()) {
    CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidUsage);
    CHECK(mentions(last_error(), "libcuda.so.1 was not found"));
    const int list[] = {0};
    CHECK(gyreCommInitAll(&comm, 1, list) == gyreInvalidUsage);
    CHECK(mentions(last_error(), "libcuda.so.1 was not found"));
  }
  OnFake on;
  comm::process().use_cuda(on.fake.table(), {});
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidUsage);
  CHECK(mentions(last_error(), "this build of Gyre has no CUDA kernels"));
  config.device = 7;
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidArgument);
  CHECK(mentions(last_error(), "device 7 is none of the 1 CUDA devices"));
}
