#include "tests/support/device/cuda_graph_cases.h"

namespace gyre::tests {

namespace cu = loaded::cu;

gyreResult_t Graphs::capture(const Ranks::Call& act) {
  for (loaded::CuStream stream : ranks_.streams)
    REQUIRE(on_.driver->stream_begin_capture(stream, cu::capture_global) == cu::success);
  const gyreResult_t called = ranks_.call(act);
  for (loaded::CuStream stream : ranks_.streams) {
    loaded::CuGraph graph = nullptr;
    REQUIRE(on_.driver->stream_end_capture(stream, &graph) == cu::success);
    loaded::CuGraphRun& run = runs_.emplace_back();
    REQUIRE(on_.driver->graph_instantiate(&run, graph, 0) == cu::success);
    REQUIRE(on_.driver->graph_destroy(graph) == cu::success);
  }
  return called;
}

void Graphs::launch(std::size_t rank) {
  REQUIRE(on_.driver->graph_launch(runs_[rank], ranks_.streams[rank]) == cu::success);
}

void Graphs::replay() {
  for (std::size_t rank = 0; rank < runs_.size(); ++rank) launch(rank);
}

void Graphs::destroy() {
  for (loaded::CuGraphRun run : std::exchange(runs_, {}))
    REQUIRE(on_.driver->graph_run_destroy(run) == cu::success);
}

GraphBuffers::GraphBuffers(const OnCuda& on, std::size_t ranks, std::size_t elements)
    : count(elements) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    in.emplace_back(on, count);
    out.emplace_back(on, count);
  }
}

void GraphBuffers::fill(int round) const {
  for (std::size_t rank = 0; rank < in.size(); ++rank) {
    in[rank].fill([=](std::size_t i) { return brought(static_cast<int>(rank), i) + round; });
    out[rank].fill([](std::size_t) { return -1; });
  }
}

gyreResult_t GraphBuffers::all_reduce(int rank, gyreComm_t comm, gyreStream_t stream) const {
  const auto at = static_cast<std::size_t>(rank);
  return gyreAllReduce(in[at].data(), out[at].data(), count, gyreInt32, gyreSum, comm, stream);
}

std::size_t GraphBuffers::wrong_sums(int round) const {
  std::size_t wrong = 0;
  const int n = static_cast<int>(in.size());
  for (const DeviceInts& one : out) {
    const std::vector<std::int32_t> got = one.values();
    for (std::size_t i = 0; i < count; ++i) wrong += got[i] != sum_of_all(n, i) + n * round;
  }
  return wrong;
}

void check_captured_call(const OnCuda& on, int ranks_count, std::size_t count, int replays) {
  Ranks ranks(on, ranks_count);
  INFO(last_error());
  REQUIRE(ranks.begun == gyreSuccess);
  const GraphBuffers buffers(on, ranks.comms.size(), count);
  Graphs graphs(on, ranks);
  buffers.fill(0);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.all_reduce(rank, comm, stream);
  }) == gyreSuccess);
  CHECK(buffers.out[0].values()[0] == -1);
  for (int round = 1; round <= replays; ++round) {
    buffers.fill(round);
    graphs.replay();
    ranks.synchronize();
    CHECK(buffers.wrong_sums(round) == 0);
  }
  // As fast as they come, without the host between.
  for (int i = 0; i < replays; ++i) graphs.replay();
  ranks.synchronize();
  CHECK(buffers.wrong_sums(replays) == 0);
}

void check_replays_among_calls(const OnCuda& on, std::size_t count, int rounds) {
  Ranks ranks(on, 2);
  const GraphBuffers buffers(on, 2, count);
  Graphs graphs(on, ranks);
  const auto call = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.all_reduce(rank, comm, stream);
  };
  REQUIRE(graphs.capture(call) == gyreSuccess);
  for (int round = 0; round < rounds; ++round) {
    buffers.fill(round);
    if (round % 2 == 0) graphs.replay();
    if (round % 3 == 0) REQUIRE(ranks.call(call) == gyreSuccess);
    if (round % 3 != 2) graphs.replay();
    ranks.synchronize();
    const bool any = round % 2 == 0 || round % 3 != 2;
    CHECK(buffers.wrong_sums(any ? round : 0) == (any ? 0 : 2 * count));
  }
}

void check_captured_group(const OnCuda& on, std::size_t count, int replays) {
  constexpr std::size_t n = 3;
  REQUIRE(count >= 900);
  Ranks ranks(on, n);
  const GraphBuffers buffers(on, n, count), second(on, n, count);
  const std::size_t counts[n] = {5, 0, 900}, places[n] = {0, 5, 10};
  std::vector<DeviceInts> gathered, received;
  for (std::size_t rank = 0; rank < n; ++rank) {
    gathered.emplace_back(on, 1000);
    received.emplace_back(on, count);
  }
  Graphs graphs(on, ranks);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    const auto at = static_cast<std::size_t>(rank);
    (void)buffers.all_reduce(rank, comm, stream);
    (void)second.all_reduce(rank, comm, stream);
    (void)gyreAllGatherv(buffers.in[at].data(), counts[at], gathered[at].data(), counts, places,
                         gyreInt32, comm, stream);
    (void)gyreSend(buffers.in[at].data(), count, gyreInt32, (rank + 1) % 3, comm, stream);
    return gyreRecv(received[at].data(), count, gyreInt32, (rank + 2) % 3, comm, stream);
  }) == gyreSuccess);
  for (int round = 0; round < replays; ++round) {
    buffers.fill(round);
    second.fill(round + 50);
    graphs.replay();
    ranks.synchronize();
    CHECK(buffers.wrong_sums(round) == 0);
    CHECK(second.wrong_sums(round + 50) == 0);
    std::size_t wrong = 0;
    for (std::size_t rank = 0; rank < n; ++rank) {
      const std::vector<std::int32_t> all = gathered[rank].values(), one = received[rank].values();
      for (std::size_t from = 0; from < n; ++from)
        for (std::size_t i = 0; i < counts[from]; ++i)
          wrong += all[places[from] + i] != brought(static_cast<int>(from), i) + round;
      for (std::size_t i = 0; i < count; ++i)
        wrong += one[i] != brought(static_cast<int>((rank + 2) % n), i) + round;
    }
    CHECK(wrong == 0);
  }
}

void check_captured_streams(const OnCuda& on, std::size_t count) {
  Ranks ranks(on, 1);
  const GraphBuffers buffers(on, 1, count), second(on, 1, count);
  loaded::CuStream side = nullptr;
  loaded::CuEvent fork = nullptr, join = nullptr;
  REQUIRE(on.driver->stream_create(&side, cu::stream_non_blocking) == cu::success);
  REQUIRE(on.driver->event_create(&fork, cu::event_disable_timing) == cu::success);
  REQUIRE(on.driver->event_create(&join, cu::event_disable_timing) == cu::success);
  buffers.fill(1), second.fill(2);
  {
    Graphs graphs(on, ranks);
    REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
      (void)gyreGroupEnd();  // each call at once
      CHECK(buffers.all_reduce(rank, comm, stream) == gyreSuccess);
      REQUIRE(on.driver->event_record(fork, ranks.streams[0]) == cu::success);
      REQUIRE(on.driver->stream_wait_event(side, fork, 0) == cu::success);
      CHECK(second.all_reduce(rank, comm, reinterpret_cast<gyreStream_t>(side)) == gyreSuccess);
      REQUIRE(on.driver->event_record(join, side) == cu::success);
      REQUIRE(on.driver->stream_wait_event(ranks.streams[0], join, 0) == cu::success);
      return gyreGroupStart();
    }) == gyreSuccess);
    graphs.replay();
    ranks.synchronize();
  }
  CHECK(buffers.wrong_sums(1) + second.wrong_sums(2) == 0);
  (void)on.driver->event_destroy(fork);
  (void)on.driver->event_destroy(join);
  (void)on.driver->stream_destroy(side);
}

void check_graph_stays_usable(const OnCuda& on, std::size_t count) {
  Ranks ranks(on, 2);
  const GraphBuffers buffers(on, 2, count), second(on, 2, count);
  Graphs graphs(on, ranks);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    (void)buffers.all_reduce(rank, comm, stream);
    return second.all_reduce(rank, comm, stream);
  }) == gyreSuccess);
  buffers.fill(0);
  graphs.replay();
  ranks.synchronize();
  for (gyreComm_t& comm : ranks.comms)
    REQUIRE(gyreCommDestroy(std::exchange(comm, nullptr)) == gyreSuccess);
  buffers.fill(3), second.fill(5);
  graphs.replay();
  ranks.synchronize();
  CHECK(buffers.wrong_sums(3) == 0);
  CHECK(second.wrong_sums(5) == 0);
}

void check_abort_of_replay(const OnCuda& on, std::size_t count, double max_seconds) {
  Ranks ranks(on, 2);
  const GraphBuffers buffers(on, 2, count);
  Graphs graphs(on, ranks);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.all_reduce(rank, comm, stream);
  }) == gyreSuccess);
  graphs.launch(0);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(gyreCommAbort(std::exchange(ranks.comms[1], nullptr)) == gyreSuccess);
  ranks.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(took.count() < max_seconds);
  CHECK(ranks.await_error(0) == gyreRemoteError);
  graphs.launch(0);
  ranks.synchronize();
}

void check_replay_left_out(const OnCuda& on, std::size_t count, int timeout_ms) {
  Ranks ranks(on, 2, 1, timeout_ms);
  const GraphBuffers buffers(on, 2, count);
  Graphs graphs(on, ranks);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.all_reduce(rank, comm, stream);
  }) == gyreSuccess);
  graphs.launch(1);
  CHECK(ranks.await_error(1) == gyreTimeout);
  CHECK(mentions(last_error(ranks.comms[1]), "from rank 0"));
  ranks.synchronize();
}

void check_default_stream_in_capture(const OnCuda& on, std::size_t count) {
  Ranks ranks(on, 1);
  const GraphBuffers buffers(on, 1, count);
  loaded::CuStream blocking = nullptr;
  REQUIRE(on.driver->stream_create(&blocking, 0) == cu::success);
  for (loaded::CuStream captured : {blocking, ranks.streams[0]}) {
    buffers.fill(1);
    REQUIRE(on.driver->stream_begin_capture(captured, cu::capture_global) == cu::success);
    const gyreResult_t called = buffers.all_reduce(0, ranks.comms[0], nullptr);
    if (captured == blocking) {
      CHECK(called == gyreInvalidUsage);
      CHECK(mentions(last_error(ranks.comms[0]), "while another stream of the device is captured"));
    } else {
      CHECK(called == gyreSuccess);
    }
    CHECK(buffers.all_reduce(0, ranks.comms[0], reinterpret_cast<gyreStream_t>(captured)) ==
          gyreSuccess);
    loaded::CuGraph graph = nullptr;
    REQUIRE(on.driver->stream_end_capture(captured, &graph) == cu::success);
    REQUIRE(on.driver->graph_destroy(graph) == cu::success);
  }
  REQUIRE(on.driver->stream_synchronize(nullptr) == cu::success);
  CHECK(buffers.wrong_sums(1) == 0);
  REQUIRE(on.driver->stream_destroy(blocking) == cu::success);
}

void check_spoiled_capture(const OnCuda& on, std::size_t count) {
  Ranks ranks(on, 1);
  const GraphBuffers buffers(on, 1, count);
  const auto call = [&] { return buffers.all_reduce(0, ranks.comms[0], ranks.stream(0)); };
  REQUIRE(on.driver->stream_begin_capture(ranks.streams[0], cu::capture_global) == cu::success);
  CHECK(call() == gyreSuccess);
  loaded::CuDevicePointer memory = 0;
  CHECK(on.driver->allocate(&memory, 100) == cu::capture_unsupported);  // the program's mistake
  CHECK(call() == gyreInvalidUsage);
  CHECK(mentions(last_error(ranks.comms[0]), "the capture that the stream is part of has failed"));
  loaded::CuGraph graph = nullptr;
  CHECK(on.driver->stream_end_capture(ranks.streams[0], &graph) == cu::capture_spoiled);
  CHECK(graph == nullptr);
  buffers.fill(4);
  CHECK(call() == gyreSuccess);
  ranks.synchronize();
  CHECK(buffers.wrong_sums(4) == 0);
}

}  // namespace gyre::tests
