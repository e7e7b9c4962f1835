// CUDA graphs of Gyre's calls over the fake driver: captured once, replayed without the host, kept
// alive by the graph.
#include "tests/support/device_ranks.h"

using namespace gyre;
using namespace gyre::tests;
namespace cu = loaded::cu;

namespace {

constexpr std::size_t count = 3000;

// A graph of each rank, made ready to be launched on its stream.
class Graphs {
 public:
  Graphs(OnFake& on, Ranks& ranks) : on_(on), ranks_(ranks) {}
  ~Graphs() { destroy(); }

  // What the ranks call in `act` becomes a graph each; what the group came to.
  gyreResult_t capture(const Ranks::Call& act) {
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
  void launch(std::size_t rank) {
    REQUIRE(on_.driver->graph_launch(runs_[rank], ranks_.streams[rank]) == cu::success);
  }
  void replay() {
    for (std::size_t rank = 0; rank < runs_.size(); ++rank) launch(rank);
  }
  void destroy() {
    for (loaded::CuGraphRun run : std::exchange(runs_, {}))
      REQUIRE(on_.driver->graph_run_destroy(run) == cu::success);
  }

 private:
  OnFake& on_;
  Ranks& ranks_;
  std::vector<loaded::CuGraphRun> runs_;
};

struct Buffers {
  Buffers(OnFake& on, std::size_t ranks) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      in.emplace_back(on, count);
      out.emplace_back(on, 3 * count);
    }
  }
  void fill(int round) {
    for (std::size_t rank = 0; rank < in.size(); ++rank) {
      for (std::size_t i = 0; i < count; ++i)
        in[rank].data()[i] = brought(static_cast<int>(rank), i) + round;
      std::fill_n(out[rank].data(), 3 * count, -1);
    }
  }
  std::vector<DeviceInts> in, out;
};

gyreResult_t all_reduce(const Buffers& buffers, int rank, gyreComm_t comm, gyreStream_t stream) {
  const auto at = static_cast<std::size_t>(rank);
  return gyreAllReduce(buffers.in[at].data(), buffers.out[at].data(), count, gyreInt32, gyreSum,
                       comm, stream);
}

std::size_t wrong_sums(const Buffers& buffers, int round) {
  std::size_t wrong = 0;
  const int n = static_cast<int>(buffers.in.size());
  for (const DeviceInts& out : buffers.out)
    for (std::size_t i = 0; i < count; ++i) wrong += out.data()[i] != sum_of_all(n, i) + n * round;
  return wrong;
}

}  // namespace

TEST_CASE("a captured call runs at each replay, and not before", "[device][graph]") {
  const std::string protocol = GENERATE("LL", "LL128", "Simple", "Direct");
  OnFake on({}, {{"GYRE_PROTO", protocol}});
  Ranks ranks(on, 3);
  Buffers buffers(on, 3);
  Graphs graphs(on, ranks);
  buffers.fill(0);
  // Links and plans open inside the capture.
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return all_reduce(buffers, rank, comm, stream);
  }) == gyreSuccess);
  CHECK(buffers.out[0].data()[0] == -1);
  for (int round = 1; round < 6; ++round) {
    buffers.fill(round);
    graphs.replay();
    ranks.synchronize();
    CHECK(wrong_sums(buffers, round) == 0);
  }
}

TEST_CASE("replays and calls may follow one another on a stream", "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 2);
  Buffers buffers(on, 2);
  Graphs graphs(on, ranks);
  const auto call = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return all_reduce(buffers, rank, comm, stream);
  };
  REQUIRE(graphs.capture(call) == gyreSuccess);
  for (int round = 0; round < 6; ++round) {
    buffers.fill(round);
    if (round % 2 == 0) graphs.replay();
    if (round % 3 == 0) REQUIRE(ranks.call(call) == gyreSuccess);
    if (round % 3 != 2) graphs.replay();
    ranks.synchronize();
    const bool any = round % 2 == 0 || round % 3 != 2;
    CHECK(wrong_sums(buffers, any ? round : 0) == (any ? 0 : 2 * count));
  }
}

TEST_CASE("groups, sends, receives and uneven blocks can be captured", "[device][graph]") {
  OnFake on;
  constexpr std::size_t n = 3;
  Ranks ranks(on, n);
  Buffers buffers(on, n), second(on, n);
  const std::size_t counts[n] = {5, 0, 900}, places[n] = {0, 5, 10};
  std::vector<DeviceInts> gathered, received;
  for (std::size_t rank = 0; rank < n; ++rank) {
    gathered.emplace_back(on, 1000);
    received.emplace_back(on, count);
  }
  Graphs graphs(on, ranks);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    const auto at = static_cast<std::size_t>(rank);
    (void)all_reduce(buffers, rank, comm, stream);
    (void)all_reduce(second, rank, comm, stream);
    (void)gyreAllGatherv(buffers.in[at].data(), counts[at], gathered[at].data(), counts, places,
                         gyreInt32, comm, stream);
    (void)gyreSend(buffers.in[at].data(), count, gyreInt32, (rank + 1) % 3, comm, stream);
    return gyreRecv(received[at].data(), count, gyreInt32, (rank + 2) % 3, comm, stream);
  }) == gyreSuccess);
  for (int round = 0; round < 4; ++round) {
    buffers.fill(round);
    second.fill(round + 50);
    graphs.replay();
    ranks.synchronize();
    CHECK(wrong_sums(buffers, round) == 0);
    CHECK(wrong_sums(second, round + 50) == 0);
    std::size_t wrong = 0;
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t from = 0; from < n; ++from)
        for (std::size_t i = 0; i < counts[from]; ++i)
          wrong +=
              gathered[rank].data()[places[from] + i] != brought(static_cast<int>(from), i) + round;
      for (std::size_t i = 0; i < count; ++i)
        wrong += received[rank].data()[i] != brought(static_cast<int>((rank + 2) % n), i) + round;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("calls of one capture on several streams keep their order", "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 1);
  Buffers buffers(on, 1), second(on, 1);
  loaded::CuStream side = nullptr;
  loaded::CuEvent fork = nullptr, join = nullptr;
  REQUIRE(on.driver->stream_create(&side, 0) == cu::success);
  REQUIRE(on.driver->event_create(&fork, cu::event_disable_timing) == cu::success);
  REQUIRE(on.driver->event_create(&join, cu::event_disable_timing) == cu::success);
  buffers.fill(1), second.fill(2);
  {
    Graphs graphs(on, ranks);
    REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
      (void)gyreGroupEnd();  // each call at once
      CHECK(all_reduce(buffers, rank, comm, stream) == gyreSuccess);
      REQUIRE(on.driver->event_record(fork, ranks.streams[0]) == cu::success);
      REQUIRE(on.driver->stream_wait_event(side, fork, 0) == cu::success);
      CHECK(all_reduce(second, rank, comm, reinterpret_cast<gyreStream_t>(side)) == gyreSuccess);
      REQUIRE(on.driver->event_record(join, side) == cu::success);
      REQUIRE(on.driver->stream_wait_event(ranks.streams[0], join, 0) == cu::success);
      return gyreGroupStart();
    }) == gyreSuccess);
    graphs.replay();
    ranks.synchronize();
  }
  CHECK(wrong_sums(buffers, 1) + wrong_sums(second, 2) == 0);
  (void)on.driver->event_destroy(fork);
  (void)on.driver->event_destroy(join);
  (void)on.driver->stream_destroy(side);
}

TEST_CASE("a graph keeps what its kernels reach, also without its communicator",
          "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 2);
  Buffers buffers(on, 2), second(on, 2);
  {
    Graphs graphs(on, ranks);
    REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
      (void)all_reduce(buffers, rank, comm, stream);
      return all_reduce(second, rank, comm, stream);
    }) == gyreSuccess);
    buffers.fill(0);
    graphs.replay();
    ranks.synchronize();
    for (gyreComm_t& comm : ranks.comms)
      REQUIRE(gyreCommDestroy(std::exchange(comm, nullptr)) == gyreSuccess);
    buffers.fill(3);
    graphs.replay();
    ranks.synchronize();
    CHECK(wrong_sums(buffers, 3) == 0);
  }
  // OnFake sees that nothing is left.
}

TEST_CASE("an abort frees replayed kernels, and later replays leave at once", "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 2);
  Buffers buffers(on, 2);
  Graphs graphs(on, ranks);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return all_reduce(buffers, rank, comm, stream);
  }) == gyreSuccess);
  graphs.launch(0);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(gyreCommAbort(ranks.comms[1]) == gyreSuccess);
  ranks.comms[1] = nullptr;
  ranks.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(took.count() < 3);
  CHECK(ranks.await_error(0) == gyreRemoteError);
  graphs.launch(0);
  ranks.synchronize();
}

TEST_CASE("a replay that a rank leaves out ends by its deadline with an error", "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 2, 1, 300);
  Buffers buffers(on, 2);
  Graphs graphs(on, ranks);
  REQUIRE(graphs.capture([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return all_reduce(buffers, rank, comm, stream);
  }) == gyreSuccess);
  graphs.launch(1);
  CHECK(ranks.await_error(1) == gyreTimeout);
  CHECK(mentions(last_error(ranks.comms[1]), "from rank 0"));
  ranks.synchronize();
}

TEST_CASE("a capture that has failed is said so, and leaves the communicator whole",
          "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 1);
  Buffers buffers(on, 1);
  const auto call = [&] { return all_reduce(buffers, 0, ranks.comms[0], ranks.stream(0)); };
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
  CHECK(wrong_sums(buffers, 4) == 0);
}
