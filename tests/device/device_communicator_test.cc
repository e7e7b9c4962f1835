// Communicators of CUDA devices through the C API, over the fake driver. It runs the real kernels
// on the simulated device (tests/support/host_device).
#include "tests/support/device/cuda_cases.h"
#include "tests/support/device/cuda_graph_cases.h"

#include <future>
#include <thread>

namespace device_communicator_test {

using namespace gyre;
using namespace gyre::tests;

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
  const std::string protocol = GENERATE("LL", "LL128", "Simple", "Direct");
  OnFake on({}, {{"GYRE_PROTO", protocol}});
  Ranks ranks(on, 3);
  REQUIRE(ranks.begun == gyreSuccess);
  for (const Collective& one : collectives()) check_collective(on, ranks, one, 40000);
}

TEST_CASE("ranks that are threads get the same from every algorithm and protocol", "[device]") {
  OnFake on;
  CudaSweep sweep;
  sweep.ranks = {2, 4};
  sweep.counts = {0, 1, 7, 1009};
  sweep.stride = 3;
  sweep.seed = rng_seed();
  check_schedules(on, sweep);
}

TEST_CASE("random operations of threads are right on a device", "[device]") {
  OnFake on;
  CudaSoak soak;
  soak.ranks = {2, 3, 4};
  soak.counts = {0, 1, 129, 1009, 5003};
  soak.operations = 30;
  soak.each_lasts = 10;
  soak.seed = rng_seed();
  check_random_operations(on, soak);
}

TEST_CASE("uneven blocks and a barrier are right on a device, more calls than tables", "[device]") {
  OnFake on;
  constexpr std::size_t n = 3;
  Ranks ranks(on, n);
  const std::size_t counts[n] = {5, 0, 900}, places[n] = {0, 5, 10};
  std::vector<DeviceInts> in, gathered, scattered;
  for (int rank = 0; rank < 3; ++rank) {
    for (auto* list : {&in, &gathered, &scattered}) list->emplace_back(on, 1000);
    in.back().fill([rank](std::size_t i) { return brought(rank, i); });
  }
  for (int round = 0; round < 12; ++round)
    REQUIRE(ranks.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
      const auto at = static_cast<std::size_t>(rank);
      (void)gyreAllGatherv(in[at].data(), counts[at], gathered[at].data(), counts, places,
                           gyreInt32, comm, stream);
      (void)gyreBarrier(comm, stream);
      return gyreReduceScatterv(in[at].data(), scattered[at].data(), counts, gyreInt32, gyreSum,
                                comm, stream);
    }) == gyreSuccess);
  ranks.synchronize();
  std::size_t wrong = 0, first = 0;
  for (std::size_t rank = 0; rank < n; ++rank) {
    for (std::size_t from = 0; from < n; ++from)
      for (std::size_t i = 0; i < counts[from]; ++i)
        wrong += gathered[rank].data()[places[from] + i] != brought(static_cast<int>(from), i);
    for (std::size_t i = 0; i < counts[rank]; ++i)
      wrong += scattered[rank].data()[i] != sum_of_all(n, first + i);
    first += counts[rank];
  }
  CHECK(wrong == 0);
}

TEST_CASE("ranks work on two devices, whether or not these reach each other", "[device]") {
  const bool reaches = GENERATE(true, false);
  OnFake on({.devices = 2, .peer_access = reaches});
  Ranks ranks(on, 2, 2);
  REQUIRE(ranks.begun == gyreSuccess);
  int device = -1;
  CHECK(gyreCommCuDevice(ranks.comms[1], &device) == gyreSuccess);
  CHECK(device == 1);
  // The test's buffers and streams are device 0's alone: with nothing, ranks still meet.
  const gyreResult_t called = ranks.call([&](int, gyreComm_t comm, gyreStream_t) {
    return gyreAllReduce(nullptr, nullptr, 0, gyreInt32, gyreSum, comm, nullptr);
  });
  CHECK(called == gyreSuccess);
}

TEST_CASE("nothing inside a call may wait for kernels, from the second call on", "[device]") {
  OnFake on;
  Pair pair(on);
  const int before = on.fake.synchronising_calls(), allocated = on.fake.allocations();
  for (int i = 0; i < 20; ++i)
    for (const int rank : {0, 1}) REQUIRE(pair.call(rank, 100) == gyreSuccess);
  pair.ranks.synchronize();
  CHECK(on.fake.synchronising_calls() == before);
  CHECK(on.fake.allocations() == allocated);
}

// How often some functions of the driver are called.
struct Questions {
  explicit Questions(OnFake& on) : real(on.fake.table()) {
    auto counting = on.fake.library_table();
    auto table = std::make_unique<loaded::CudaDriver>(*counting);
    now = this;
    table->stream_capture_info = [](loaded::CuStream stream, int* status, std::uint64_t* id,
                                    loaded::CuGraph* graph, const loaded::CuGraphNode** nodes,
                                    std::size_t* count) {
      ++now->captures;
      return now->real->stream_capture_info(stream, status, id, graph, nodes, count);
    };
    table->exchange_capture_mode = [](int* mode) {
      ++now->scopes;  // twice each
      return now->real->exchange_capture_mode(mode);
    };
    comm::process().use_cuda(std::move(table), FakeCuda::images());
  }
  // What the process holds of a device goes by this table.
  ~Questions() { comm::process().use_cuda(nullptr, {}); }
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;

  std::unique_ptr<const loaded::CudaDriver> real;
  std::atomic<int> captures{0}, scopes{0};
  static inline Questions* now = nullptr;
};

TEST_CASE("a call asks once what its stream is, and enters the device once", "[device]") {
  OnFake on;
  Questions questions(on);
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  gyreConfig_t config = device_config(0);
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  REQUIRE(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreSuccess);
  DeviceInts in(on, 10), out(on, 10);
  const auto call = [&] {
    return gyreAllReduce(in.data(), out.data(), 10, gyreInt32, gyreSum, comm, nullptr);
  };
  REQUIRE(call() == gyreSuccess);
  if (auto pin = comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(comm)))
    comm::process().device_watch.remove(device_backend(*pin));  // it looks when it likes
  const int captures = questions.captures, scopes = questions.scopes;
  for (int i = 0; i < 10; ++i) REQUIRE(call() == gyreSuccess);
  CHECK(questions.captures - captures == 10);
  CHECK(questions.scopes - scopes == 20);
  REQUIRE(gyreGroupStart() == gyreSuccess);
  for (int i = 0; i < 4; ++i) REQUIRE(call() == gyreSuccess);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  CHECK(questions.captures - captures == 10 + 4 + 4);
  CHECK(gyreCommDestroy(comm) == gyreSuccess);
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
  check_refusals(on);
  CHECK(on.fake.launches() == 1);  // the one that nothing was wrong with
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
  check_deadline(on, 300);
}

// What a tool would read of rank 0's kernels after a while.
WaitRecord told_of_kernels(const Ranks& ranks, BlockedOn expected) {
  WaitRecord told;
  const auto pin =
      comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(ranks.comms[0]));
  REQUIRE(bool(pin));
  constexpr auto lane = static_cast<std::size_t>(WaitLane::kernels);
  for (int i = 0; i < 3000 && told.what != expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    told = pin->rank_state().memory().waits[lane].read().value_or(told);
  }
  return told;
}

TEST_CASE("a kernel that waits for a rank is told from one that has not begun", "[device]") {
  OnFake on;
  Pair pair(on);
  Ranks& ranks = pair.ranks;
  REQUIRE(pair.call(0, 10) == gyreSuccess);
  CHECK(told_of_kernels(ranks, BlockedOn::data).what == BlockedOn::data);
  CHECK(told_of_kernels(ranks, BlockedOn::data).peer == 1);
  REQUIRE(pair.call(1, 10) == gyreSuccess);
  ranks.synchronize();
  CHECK(told_of_kernels(ranks, BlockedOn::nothing).what == BlockedOn::nothing);

  // Something else has the stream: an event that another stream has yet to come to.
  Pair others(on);
  loaded::CuEvent event = nullptr;
  REQUIRE(on.driver->event_create(&event, loaded::cu::event_disable_timing) == loaded::cu::success);
  REQUIRE(others.call(0, 10) == gyreSuccess);
  REQUIRE(on.driver->event_record(event, others.ranks.streams[0]) == loaded::cu::success);
  REQUIRE(on.driver->stream_wait_event(ranks.streams[0], event, 0) == loaded::cu::success);
  for (const int rank : {0, 1}) REQUIRE(pair.call(rank, 10) == gyreSuccess);
  CHECK(told_of_kernels(ranks, BlockedOn::stream).what == BlockedOn::stream);
  REQUIRE(others.call(1, 10) == gyreSuccess);
  ranks.synchronize();
  others.ranks.synchronize();
  (void)on.driver->event_destroy(event);
}

TEST_CASE("a call that cannot begin after replays of a graph ends in an error, too", "[device]") {
  OnFake on;
  Ranks ranks(on, 1, 1, 300), others(on, 2);
  const GraphBuffers buffers(on, 2, 10);
  Graphs graphs(on, ranks);
  const auto call = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.all_reduce(rank, comm, stream);
  };
  REQUIRE(graphs.capture(call) == gyreSuccess);
  for (int i = 0; i < 3; ++i) graphs.replay();
  ranks.synchronize();
  // On a stream behind a kernel that waits.
  REQUIRE(others.call(call) == gyreSuccess);
  REQUIRE(call(0, others.comms[0], others.stream(0)) == gyreSuccess);
  REQUIRE(call(1, ranks.comms[0], others.stream(0)) == gyreSuccess);
  CHECK(ranks.await_error(0) == gyreTimeout);
  CHECK(mentions(last_error(ranks.comms[0]), "has not begun"));
  REQUIRE(call(1, others.comms[1], others.stream(1)) == gyreSuccess);
  others.synchronize();
}

TEST_CASE("a kernel that cannot begin ends in an error after its deadline", "[device]") {
  OnFake on;
  Ranks ranks(on, 1, 1, 300), others(on, 2);
  DeviceInts a(on, 10), b(on, 10);
  const auto call = [&](DeviceInts& data, gyreComm_t comm, gyreStream_t stream) {
    return gyreAllReduce(data.data(), data.data(), 10, gyreInt32, gyreSum, comm, stream);
  };
  // On a stream behind a kernel that waits.
  REQUIRE(others.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return call(rank == 0 ? a : b, comm, stream);
  }) == gyreSuccess);
  REQUIRE(call(a, others.comms[0], others.stream(0)) == gyreSuccess);
  REQUIRE(call(b, ranks.comms[0], others.stream(0)) == gyreSuccess);
  CHECK(ranks.await_error(0) == gyreTimeout);
  CHECK(mentions(last_error(ranks.comms[0]), "has not begun"));
  REQUIRE(call(b, others.comms[1], others.stream(1)) == gyreSuccess);
  others.synchronize();
}

TEST_CASE("calls on two threads' own default streams come one after the other", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  std::vector<DeviceInts> buffers;  // of rank 0's two calls, and of rank 1's
  for (int i = 0; i < 4; ++i) {
    buffers.emplace_back(on, 5000);
    std::fill_n(buffers.back().data(), 5000, 1 + i);
  }
  const auto sum = [&](int rank, std::size_t number, gyreStream_t stream) {
    auto* const data = buffers[2 * static_cast<std::size_t>(rank) + number].data();
    return gyreAllReduce(data, data, 5000, gyreInt32, gyreSum,
                         ranks.comms[static_cast<std::size_t>(rank)], stream);
  };
  REQUIRE(ranks.call([&](int rank, gyreComm_t, gyreStream_t stream) {
    return sum(rank, 0, stream);
  }) == gyreSuccess);  // opens the plan
  ranks.synchronize();
  std::promise<gyreResult_t> first;
  std::promise<void> all_called;
  const auto own = loaded::cu::thread_stream;
  std::thread other([&] {
    const loaded::CurrentContext scope(*on.driver, on.owner);
    first.set_value(sum(0, 0, reinterpret_cast<gyreStream_t>(own)));
    all_called.get_future().wait();
    (void)on.driver->stream_synchronize(own);
  });
  CHECK(first.get_future().get() == gyreSuccess);
  CHECK(sum(0, 1, reinterpret_cast<gyreStream_t>(own)) == gyreSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its kernel could have begun
  for (std::size_t number = 0; number < 2; ++number)
    CHECK(sum(1, number, ranks.stream(1)) == gyreSuccess);
  all_called.set_value();
  other.join();
  (void)on.driver->stream_synchronize(own);
  ranks.synchronize();
  for (std::size_t number = 0; number < 2; ++number)
    for (std::size_t rank = 0; rank < 2; ++rank)
      CHECK(buffers[2 * rank + number].data()[4999] == (number == 0 ? 8 : 6));
}

TEST_CASE("an abort frees a kernel whose peer never comes within a second", "[device]") {
  OnFake on;
  check_abort(on, 3);  // a test's slack
}

TEST_CASE("ranks whose device calls differ are told both calls", "[device]") {
  OnFake on;
  check_mismatch(on);
}

TEST_CASE("gyreCommFinalize waits for the cause of a kernel that has given up", "[device]") {
  OnFake on;
  Pair pair(on);
  REQUIRE(pair.call(0, 40) == gyreSuccess);
  REQUIRE(pair.call(1, 41) == gyreSuccess);
  for (gyreComm_t comm : pair.ranks.comms) {
    const gyreResult_t result = gyreCommFinalize(comm);
    INFO(last_error(comm));
    CHECK(result == gyreMismatch);
  }
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
  comm::process().use_cuda(on.fake.library_table(), {});
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidUsage);
  CHECK(mentions(last_error(), "this build of Gyre has no CUDA kernels"));
  config.device = 7;
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidArgument);
  CHECK(mentions(last_error(), "device 7 is not one of the 1 CUDA devices"));
}

TEST_CASE("gyreMemAlloc gives memory of the current device, which kernels take", "[device]") {
  const bool is_virtual = GENERATE(true, false);
  OnFake on({.devices = 2, .virtual_memory = is_virtual});
  Ranks ranks(on, 1);
  constexpr std::size_t count = 1000;
  void* memory = nullptr;
  REQUIRE(gyreMemAlloc(&memory, count * sizeof(std::int32_t)) == gyreSuccess);
  CHECK(mentions(on.fake.leaks(), "physical") == is_virtual);
  auto* const data = static_cast<std::int32_t*>(memory);  // the fake's lies where the host looks
  CHECK(std::count(data, data + count, 0) == count);
  data[7] = 3;
  CHECK(gyreAllReduce(data, data, count, gyreInt32, gyreSum, ranks.comms[0], ranks.stream(0)) ==
        gyreSuccess);
  ranks.synchronize();
  CHECK(data[7] == 3);
  CHECK(gyreMemFree(data + 1) != gyreSuccess);
  CHECK(gyreMemFree(memory) == gyreSuccess);
  CHECK(gyreMemFree(memory) == gyreInvalidArgument);
  CHECK(gyreAllReduce(data, data, count, gyreInt32, gyreSum, ranks.comms[0], ranks.stream(0)) ==
        gyreInvalidArgument);
  CHECK(gyreMemFree(nullptr) == gyreSuccess);
}

TEST_CASE("gyreMemAllocOn gives memory of the device that is named, or of the host", "[device]") {
  OnFake on({.devices = 2});
  Ranks ranks(on, 1);
  void* host = nullptr;
  void* other = nullptr;
  REQUIRE(gyreMemAllocOn(&host, 100, GYRE_DEVICE_HOST) == gyreSuccess);
  REQUIRE(gyreMemAllocOn(&other, 100, 1) == gyreSuccess);
  for (void* wrong : {host, other})
    CHECK(gyreBcast(wrong, 1, gyreInt8, 0, ranks.comms[0], ranks.stream(0)) == gyreInvalidArgument);
  CHECK(mentions(last_error(ranks.comms[0]), "memory of CUDA device 1"));
  CHECK(gyreMemFree(host) == gyreSuccess);
  CHECK(gyreMemFree(other) == gyreSuccess);
  CHECK(gyreMemAllocOn(&host, 0, 1) == gyreSuccess);
  CHECK(host == nullptr);
  CHECK(gyreMemAllocOn(&host, 100, 2) == gyreInvalidArgument);
  CHECK(mentions(last_error(), "device 2 is not one of the 2"));
  CHECK(gyreMemAllocOn(&host, 1ULL << 40, 0) == gyreUnhandledCudaError);
  CHECK(mentions(last_error(), "cuMemCreate of 1099511627776 bytes of device 0"));
  CHECK(gyreMemAllocOn(nullptr, 100, 0) == gyreInvalidArgument);
  for (int step = 1; step < 5; ++step) {
    on.fake.fail_allocation(step);
    CHECK(gyreMemAllocOn(&host, 100, 0) == gyreUnhandledCudaError);
    CHECK(host == nullptr);
  }
}

}  // namespace device_communicator_test
