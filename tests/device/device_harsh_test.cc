// How careless use of NVIDIA's driver may fail, with the fake at its harshest: memory that kernels
// of other devices cannot reach, calls that wait for kernels and block all threads meanwhile,
// streams that share a queue, and the implicit waits of the default stream.
#include "tests/support/base/slowness.h"
#include "tests/support/device/cuda_cases.h"
#include "tests/support/device/cuda_graph_cases.h"

#include <atomic>
#include <chrono>
#include <future>

namespace device_harsh_test {

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
    const exec::DeviceShape& shape = device_resources(*pin).executor().shape();
    const exec::DeviceLink link =
        device_resources(*pin).links().link({1 - static_cast<int>(rank), 0});
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

// To outlive the pair: freeing them asks the driver, at once.
std::vector<DeviceInts> take_buffers(Pair& pair) {
  std::vector<DeviceInts> taken;
  for (DeviceInts* one : {&pair.a, &pair.b}) taken.push_back(std::move(*one));
  return taken;
}

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < slowness * 3000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

void check_quick_abort(Pair& running) {
  const auto begin = std::chrono::steady_clock::now();
  for (gyreComm_t& comm : running.ranks.comms)
    CHECK(gyreCommAbort(std::exchange(comm, nullptr)) == gyreSuccess);
  running.ranks.synchronize();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

bool shows_replay(gyreComm_t comm) {
  const auto pin = comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(comm));
  return device_resources(*pin).executor().shows_replay();
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

TEST_CASE("a communicator ends and begins while another one's kernel waits", "[device]") {
  OnFake on(harsh());
  Pair running(on);
  auto ending = std::make_unique<Pair>(on);
  const std::vector<DeviceInts> kept = take_buffers(*ending);
  REQUIRE(running.call(0, 100) == gyreSuccess);  // and waits for rank 1
  ending.reset();
  std::unique_ptr<Ranks> made;
  auto beginning = std::async(std::launch::async, [&] {
    const loaded::CurrentContext scope(*on.driver, on.owner);
    made = std::make_unique<Ranks>(on, 2);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE(running.call(1, 100) == gyreSuccess);
  running.ranks.synchronize();
  beginning.get();
  CHECK(made->begun == gyreSuccess);
  INFO(on.fake.synchronising_shown());
  CHECK(on.fake.synchronising_calls() == 0);
  CHECK(on.fake.failure() == "");
}

TEST_CASE("a communicator begins while a kernel waits that a graph has brought", "[device]") {
  OnFake on(harsh());
  Ranks running(on, 2);
  const GraphBuffers buffers(on, 2, 100);
  Graphs graphs(on, running);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.all_reduce(rank, comm, stream);
  }) == gyreSuccess);
  buffers.fill(1);
  graphs.launch(0);  // and waits for rank 1
  REQUIRE(soon([&] { return shows_replay(running.comms[0]); }));
  std::unique_ptr<Ranks> made;
  auto beginning = std::async(std::launch::async, [&] {
    const loaded::CurrentContext scope(*on.driver, on.owner);
    made = std::make_unique<Ranks>(on, 2);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  graphs.launch(1);
  running.synchronize();
  beginning.get();
  CHECK(made->begun == gyreSuccess);
  CHECK(buffers.wrong_sums(1) == 0);
  INFO(on.fake.synchronising_shown());
  CHECK(on.fake.synchronising_calls() == 0);
  CHECK(on.fake.failure() == "");
}

TEST_CASE("a capture waits for memory that is being freed", "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 1);
  const GraphBuffers buffers(on, 1, 100);
  Graphs graphs(on, ranks);
  auto driver = comm::process().cuda_driver(loaded::CudaPresence::wanted);
  REQUIRE(driver.ok());
  std::atomic<bool> frees = false, captured = false, captured_meanwhile = true;
  (*driver)->rest->later([&] {
    frees = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    captured_meanwhile = captured.load();
  });
  REQUIRE(soon([&] { return frees.load(); }));
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.all_reduce(rank, comm, stream);
  }) == gyreSuccess);
  captured = true;
  (*driver)->rest->settle();
  CHECK(!captured_meanwhile);
}

TEST_CASE("an abort reaches a kernel while memory waits to be freed", "[device]") {
  OnFake on(harsh());
  Pair running(on);
  auto ending = std::make_unique<Pair>(on);
  const std::vector<DeviceInts> kept = take_buffers(*ending);
  REQUIRE(running.call(0, 100) == gyreSuccess);
  auto destroyed = std::async(std::launch::async, [&] { ending.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  check_quick_abort(running);
  destroyed.get();
  CHECK(on.fake.synchronising_calls() == 0);
  CHECK(soon([&] { return on.fake.failure().empty(); }));
}

TEST_CASE("whoever keeps kernels at rest may ask for a device while another one opens its own",
          "[device]") {
  OnFake on({.devices = 2});
  auto driver = comm::process().cuda_driver(loaded::CudaPresence::wanted);
  REQUIRE(driver.ok());
  std::future<bool> other;
  {
    const loaded::CudaRest::Stillness still = loaded::await_rest(**driver);
    REQUIRE(still.is_held());
    other = std::async(std::launch::async, [] { return comm::process().cuda_device(1).ok(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto begin = std::chrono::steady_clock::now();
    CHECK(comm::process().cuda_device(0).ok());
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  }
  CHECK(other.get());
}

// Any call of the driver from here on waits for that free: also the watch's.
TEST_CASE("an abort reaches a kernel while the program's own free waits for it", "[device]") {
  OnFake on(harsh());
  Pair running(on);
  loaded::CuDevicePointer memory = 0;
  REQUIRE(on.driver->allocate(&memory, 100) == cu::success);
  REQUIRE(running.call(0, 100) == gyreSuccess);
  auto freed = std::async(std::launch::async, [&] {
    const loaded::CurrentContext scope(*on.driver, on.owner);
    return on.driver->free(memory);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  gyreResult_t found = gyreSuccess;
  auto polled = std::async(std::launch::async, [&found, comm = running.ranks.comms[0]] {
    return gyreCommGetAsyncError(comm, &found);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  check_quick_abort(running);
  polled.get();
  CHECK(freed.get() == cu::success);
  CHECK(soon([&] { return on.fake.failure().empty(); }));
}

TEST_CASE("a communicator that was destroyed gives its memory back where nothing runs",
          "[device]") {
  OnFake on(harsh());
  const auto free_bytes = [&] {
    std::size_t free = 0, total = 0;
    REQUIRE(on.driver->memory_info(&free, &total) == cu::success);
    return free;
  };
  std::size_t meanwhile = 0;
  {
    const Pair pair(on);
    meanwhile = free_bytes();
  }
  CHECK(soon([&] { return free_bytes() >= meanwhile + (4 << 20); }));  // two pools, at the least
}

TEST_CASE("calls in a group and tables of any size take no memory", "[device]") {
  OnFake on(harsh({.multiprocessors = 64}), {{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}});
  Ranks ranks(on, 4);
  constexpr std::size_t each = 65536;  // elements: a call takes all channels
  DeviceInts all(on, 4 * 65 * each);
  const std::size_t counts[4] = {64, 0, 100, 92}, places[4] = {0, 64, 64, 164};
  const auto rounds = [&] {
    REQUIRE(ranks.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
      std::int32_t* const own = all.data() + 65 * each * static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < 64; ++i)
        (void)gyreAllReduce(own + i * each, own + i * each, each, gyreInt32, gyreSum, comm, stream);
      std::int32_t* const blocks = own + 64 * each;
      return gyreAllGatherv(blocks + places[rank], counts[rank], blocks, counts, places, gyreInt32,
                            comm, stream);
    }) == gyreSuccess);
    ranks.synchronize();
  };
  const int before = on.fake.allocations();
  rounds();
  CHECK(on.fake.allocations() == before);
}

TEST_CASE("under MPS two streams of a process run side by side, and no more", "[device]") {
  {
    OnFake on(harsh({.mps = true}));
    Ranks ranks(on, 3);
    CHECK(ranks.begun == gyreInvalidUsage);
    CHECK(mentions(last_error(), "only 2 streams run side by side"));
    CHECK(mentions(last_error(), "MPS"));
  }
  OnFake on(harsh({.mps = true}), {{"CUDA_DEVICE_MAX_CONNECTIONS", "3"}});
  Ranks ranks(on, 3);
  CHECK(ranks.begun == gyreSuccess);
}

TEST_CASE("ranks of one process on one GPU are refused streams that wait for each other",
          "[device]") {
  struct Case {
    const char* what;
    std::function<loaded::CuStream(const Ranks&, loaded::CuStream blocking, int rank)> stream;
    const char* word;
  };
  const Case one = GENERATE(
      Case{"one stream", [](const Ranks& ranks, auto*, int) { return ranks.streams[0]; },
           "one stream"},
      Case{"the default one", [](const Ranks&, auto*, int) { return loaded::CuStream(nullptr); },
           "default stream"},
      Case{"its other name",
           [](const Ranks&, auto*, int rank) { return rank == 0 ? nullptr : cu::default_stream; },
           "default stream"},
      Case{"a blocking one beside the default",
           [](const Ranks&, auto* blocking, int rank) { return rank == 0 ? nullptr : blocking; },
           "cudaStreamNonBlocking"});
  INFO(one.what);
  OnFake on(harsh());
  Pair pair(on);
  loaded::CuStream blocking = nullptr;
  REQUIRE(on.driver->stream_create(&blocking, 0) == cu::success);
  const auto call = [&](int rank, loaded::CuStream stream) {
    std::int32_t* const data = rank == 0 ? pair.a.data() : pair.b.data();
    return gyreAllReduce(data, data, 100, gyreInt32, gyreSum,
                         pair.ranks.comms[static_cast<std::size_t>(rank)],
                         reinterpret_cast<gyreStream_t>(stream));
  };
  REQUIRE(call(0, one.stream(pair.ranks, blocking, 0)) == gyreSuccess);
  CHECK(call(1, one.stream(pair.ranks, blocking, 1)) == gyreInvalidUsage);
  CHECK(mentions(last_error(pair.ranks.comms[1]), one.word));
  // It broke nothing.
  REQUIRE(call(1, pair.ranks.streams[1]) == gyreSuccess);
  pair.ranks.synchronize();
  REQUIRE(on.driver->stream_synchronize(nullptr) == cu::success);
  (void)on.driver->stream_destroy(blocking);
}

TEST_CASE("of two threads that call on the default stream at one time, one is refused",
          "[device]") {
  OnFake on(harsh());
  Pair pair(on);
  std::atomic<int> refused{0};
  const auto run = [&](int rank) {
    const loaded::CurrentContext scope(*on.driver, on.owner);
    std::int32_t* const data = rank == 0 ? pair.a.data() : pair.b.data();
    const auto call = [&](gyreStream_t stream) {
      return gyreAllReduce(data, data, 100, gyreInt32, gyreSum,
                           pair.ranks.comms[static_cast<std::size_t>(rank)], stream);
    };
    const gyreResult_t first = call(nullptr);
    if (first != gyreInvalidUsage) return first;
    ++refused;
    return call(pair.ranks.stream(static_cast<std::size_t>(rank)));
  };
  auto other = std::async(std::launch::async, [&] { return run(1); });
  CHECK(run(0) == gyreSuccess);
  CHECK(other.get() == gyreSuccess);
  CHECK(refused == 1);
  pair.ranks.synchronize();
  REQUIRE(on.driver->stream_synchronize(nullptr) == cu::success);
}

TEST_CASE("CUDA_LAUNCH_BLOCKING=1 is refused where ranks of one process share a GPU", "[device]") {
  OnFake on(harsh(), {{"CUDA_LAUNCH_BLOCKING", "1"}});
  {
    Ranks ranks(on, 2);
    CHECK(ranks.begun == gyreInvalidUsage);
    CHECK(mentions(last_error(), "CUDA_LAUNCH_BLOCKING"));
  }
  Ranks alone(on, 1);
  REQUIRE(alone.begun == gyreSuccess);
  check_collective(on, alone, collectives().front(), 10);
}

TEST_CASE("a rank that runs far ahead waits where it keeps nobody out", "[device]") {
  OnFake on(harsh());
  Pair pair(on);
  constexpr int calls = 1100;
  const auto run = [&](int rank) {
    const loaded::CurrentContext scope(*on.driver, on.owner);
    for (int i = 0; i < calls; ++i)
      if (pair.call(rank, 1) != gyreSuccess) return false;
    return true;
  };
  auto ahead = std::async(std::launch::async, [&] { return run(0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(run(1));
  CHECK(ahead.get());
  pair.ranks.synchronize();
  CHECK(on.fake.failure() == "");
}

TEST_CASE("a non-blocking communicator refuses a stream that each thread has of its own",
          "[device]") {
  OnFake on(harsh());
  gyreConfig_t config = device_config(0);
  config.blocking = 0;
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  (void)gyreCommInitRankConfig(&comm, 1, id, 0, &config);
  REQUIRE(soon([&] {
    gyreResult_t state = gyreInProgress;
    return gyreCommGetAsyncError(comm, &state) == gyreSuccess && state == gyreSuccess;
  }));
  DeviceInts data(on, 10);
  CHECK(gyreAllReduce(data.data(), data.data(), 10, gyreInt32, gyreSum, comm,
                      reinterpret_cast<gyreStream_t>(cu::thread_stream)) == gyreInvalidArgument);
  CHECK(mentions(last_error(comm), "cudaStreamPerThread"));
  CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

TEST_CASE("device memory that was freed is told from memory of the host", "[device]") {
  OnFake on(harsh());
  Ranks ranks(on, 1);
  std::int32_t* freed = nullptr;
  {
    DeviceInts gone(on, 100);
    freed = gone.data();
  }
  CHECK(gyreAllReduce(freed, freed, 100, gyreInt32, gyreSum, ranks.comms[0], ranks.stream(0)) ==
        gyreInvalidArgument);
  CHECK(mentions(last_error(ranks.comms[0]), "it was freed, or never allocated"));
}

}  // namespace device_harsh_test
