// Communicators through the C API: groups, streams, order, misuse, ends. Ranks are threads.
#include "tests/support/base/mentions.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gyre.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <dirent.h>
#include <fstream>
#include <numeric>
#include <sys/mman.h>
#include <thread>

namespace communicator_test {

using namespace gyre::tests;

namespace {

std::string last_error() { return gyreGetLastError(nullptr); }

// One element, so that a group of n calls in one thread is short to write.
gyreResult_t sum_one(float* value, gyreComm_t comm, gyreStream_t stream = nullptr) {
  return gyreAllReduce(value, value, 1, gyreFloat, gyreSum, comm, stream);
}

std::vector<gyreComm_t> all_in_one_thread(int n) {
  std::vector<gyreComm_t> comms(static_cast<std::size_t>(n));
  INFO(last_error());
  REQUIRE(gyreCommInitAll(comms.data(), n, nullptr) == gyreSuccess);
  return comms;
}

void destroy_all(std::vector<gyreComm_t>& comms) {
  for (gyreComm_t comm : comms) CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

int count_entries(const char* folder) {
  int count = 0;
  DIR* open = opendir(folder);
  REQUIRE(open != nullptr);
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096 / (1 << 20);
}

}  // namespace

TEST_CASE("eight ranks of one thread complete grouped calls", "[comm]") {
  auto comms = all_in_one_thread(8);
  for (int rank = 0; rank < 8; ++rank) {
    int size = 0, mine = -1, device = 7;
    CHECK(gyreCommCount(comms[static_cast<std::size_t>(rank)], &size) == gyreSuccess);
    CHECK(gyreCommUserRank(comms[static_cast<std::size_t>(rank)], &mine) == gyreSuccess);
    CHECK(gyreCommCuDevice(comms[static_cast<std::size_t>(rank)], &device) == gyreSuccess);
    CHECK(size == 8);
    CHECK(mine == rank);
    CHECK(device == GYRE_DEVICE_HOST);
  }
  for (std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{300000}}) {
    std::vector<std::vector<float>> data(8, std::vector<float>(count));
    for (std::size_t rank = 0; rank < 8; ++rank)
      std::fill(data[rank].begin(), data[rank].end(), static_cast<float>(rank + 1));
    REQUIRE(gyreGroupStart() == gyreSuccess);
    for (std::size_t rank = 0; rank < 8; ++rank)
      REQUIRE(gyreAllReduce(data[rank].data(), data[rank].data(), count, gyreFloat, gyreSum,
                            comms[rank], nullptr) == gyreSuccess);
    REQUIRE(gyreGroupEnd() == gyreSuccess);
    for (const auto& one : data)
      CHECK(std::count(one.begin(), one.end(), 36.0F) == static_cast<long>(count));
  }
  destroy_all(comms);
}

TEST_CASE("two communicators in opposite order complete in a group", "[comm]") {
  auto a = all_in_one_thread(2);
  auto b = all_in_one_thread(2);
  std::thread threads[2];
  float values[2][2] = {{1, 10}, {2, 20}};
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads[rank] = std::thread([&, rank] {
      for (int round = 0; round < 200; ++round) {
        float x = values[rank][0], y = values[rank][1];
        (void)gyreGroupStart();
        if (rank == 0) (void)sum_one(&x, a[rank]);
        (void)sum_one(&y, b[rank]);
        if (rank == 1) (void)sum_one(&x, a[rank]);
        (void)gyreGroupEnd();
        values[rank][0] = x == 3 ? values[rank][0] : -1;
        values[rank][1] = y == 30 ? values[rank][1] : -1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(values[0][0] == 1);
  CHECK(values[1][1] == 20);
  destroy_all(a);
  destroy_all(b);
}

TEST_CASE("two communicators in opposite order complete on two streams", "[comm]") {
  const unsigned int flags = GENERATE(0, GYRE_STREAM_BY_CALLER);
  auto a = all_in_one_thread(2);
  auto b = all_in_one_thread(2);
  gyreStream_t streams[4];
  for (gyreStream_t& stream : streams)
    REQUIRE(gyreStreamCreateWithFlags(&stream, flags) == gyreSuccess);
  for (int round = 0; round < 100; ++round) {
    float x[2] = {1, 2}, y[2] = {10, 20};
    REQUIRE(sum_one(&x[0], a[0], streams[0]) == gyreSuccess);
    REQUIRE(sum_one(&y[0], b[0], streams[1]) == gyreSuccess);
    REQUIRE(sum_one(&y[1], b[1], streams[2]) == gyreSuccess);
    REQUIRE(sum_one(&x[1], a[1], streams[3]) == gyreSuccess);
    for (gyreStream_t stream : streams) REQUIRE(gyreStreamSynchronize(stream) == gyreSuccess);
    REQUIRE(x[0] == 3);
    REQUIRE(x[1] == 3);
    REQUIRE(y[0] == 30);
    REQUIRE(y[1] == 30);
  }
  for (gyreStream_t stream : streams) CHECK(gyreStreamDestroy(stream) == gyreSuccess);
  destroy_all(a);
  destroy_all(b);
}

TEST_CASE("a stream keeps its order, and calls back when it has come there", "[comm]") {
  const unsigned int flags = GENERATE(0, GYRE_STREAM_BY_CALLER);
  auto comms = all_in_one_thread(2);
  gyreStream_t streams[2];
  for (gyreStream_t& stream : streams)
    REQUIRE(gyreStreamCreateWithFlags(&stream, flags) == gyreSuccess);
  float values[2] = {1, 1};
  for (int round = 0; round < 5; ++round)
    for (std::size_t rank = 0; rank < 2; ++rank)
      REQUIRE(sum_one(&values[rank], comms[rank], streams[rank]) == gyreSuccess);
  struct Seen {
    float* value;
    float at_callback = 0;
    gyreResult_t status = gyreInternalError;
  } seen{&values[0]};
  const auto look = [](gyreStream_t, gyreResult_t status, void* user) {
    auto* it = static_cast<Seen*>(user);
    it->at_callback = *it->value;
    it->status = status;
  };
  REQUIRE(gyreStreamAddCallback(streams[0], look, &seen) == gyreSuccess);
  REQUIRE(gyreStreamWait(streams[1], streams[0]) == gyreSuccess);
  REQUIRE(gyreStreamSynchronize(streams[1]) == gyreSuccess);
  CHECK(seen.at_callback == 32);
  CHECK(seen.status == gyreSuccess);
  CHECK(gyreStreamQuery(streams[0]) == gyreSuccess);
  // A call without a stream comes after what was queued.
  for (std::size_t rank = 0; rank < 2; ++rank)
    REQUIRE(sum_one(&values[rank], comms[rank], streams[rank]) == gyreSuccess);
  REQUIRE(gyreGroupStart() == gyreSuccess);
  for (std::size_t rank = 0; rank < 2; ++rank)
    REQUIRE(sum_one(&values[rank], comms[rank]) == gyreSuccess);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  CHECK(values[0] == 128);
  for (gyreStream_t stream : streams) CHECK(gyreStreamDestroy(stream) == gyreSuccess);
  CHECK(gyreStreamQuery(streams[0]) == gyreInvalidArgument);
  destroy_all(comms);
}

TEST_CASE("streams that callers drive wake no thread, and go on in what waits or asks", "[comm]") {
  auto comms = all_in_one_thread(2);
  float values[2] = {1, 2};
  for (std::size_t rank = 0; rank < 2; ++rank)  // links are made by now
    REQUIRE(gyreGroupStart() == gyreSuccess);
  for (std::size_t rank = 0; rank < 2; ++rank)
    REQUIRE(sum_one(&values[rank], comms[rank]) == gyreSuccess);
  for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(gyreGroupEnd() == gyreSuccess);
  gyreStream_t streams[2];
  for (gyreStream_t& stream : streams)
    REQUIRE(gyreStreamCreateWithFlags(&stream, GYRE_STREAM_BY_CALLER) == gyreSuccess);
  const int threads = count_entries("/proc/self/task");
  REQUIRE(sum_one(&values[0], comms[0], streams[0]) == gyreSuccess);
  CHECK(gyreStreamQuery(streams[0]) == gyreInProgress);  // rank 1 has not come
  REQUIRE(sum_one(&values[1], comms[1], streams[1]) == gyreSuccess);
  for (int turn = 0; turn < 1000 && gyreStreamQuery(streams[0]) == gyreInProgress; ++turn)
    (void)gyreStreamQuery(streams[1]);
  CHECK(gyreStreamQuery(streams[0]) == gyreSuccess);
  CHECK(gyreStreamQuery(streams[1]) == gyreSuccess);
  CHECK(values[0] == 6);
  CHECK(values[1] == 6);
  // Threads that share a communicator's streams take turns with it.
  for (int round = 0; round < 200; ++round) {
    for (std::size_t rank = 0; rank < 2; ++rank)
      REQUIRE(sum_one(&values[rank], comms[rank], streams[rank]) == gyreSuccess);
    std::thread other([&] { (void)gyreStreamSynchronize(streams[0]); });
    CHECK(gyreStreamSynchronize(streams[1]) == gyreSuccess);
    other.join();
    REQUIRE(values[0] == 12);
    REQUIRE(values[1] == 12);
    values[0] = values[1] = 6;
  }
  CHECK(count_entries("/proc/self/task") == threads);
  for (gyreStream_t stream : streams) CHECK(gyreStreamDestroy(stream) == gyreSuccess);
  CHECK(gyreStreamCreateWithFlags(&streams[0], 2) == gyreInvalidArgument);
  CHECK(last_error().find("GYRE_STREAM_BY_CALLER") != std::string::npos);
  destroy_all(comms);
}

TEST_CASE("wrong arguments are refused with the reason, and do no harm", "[comm]") {
  auto comms = all_in_one_thread(1);
  float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {};
  const auto refused = [&](const void* send, void* receive, std::size_t count, int type, int op,
                           gyreComm_t comm, const char* word) {
    CHECK(gyreAllReduce(send, receive, count, static_cast<gyreDataType_t>(type),
                        static_cast<gyreRedOp_t>(op), comm, nullptr) == gyreInvalidArgument);
    INFO(last_error());
    CHECK(mentions(last_error(), word));
  };
  refused(in, out, 8, gyreFloat, gyreSum, nullptr, "NULL");
  refused(in, out, 8, gyreFloat, gyreSum, reinterpret_cast<gyreComm_t>(0x1234), "no communicator");
  refused(in, out, 8, gyreFloat, gyreSum, reinterpret_cast<gyreComm_t>(&in), "no communicator");
  refused(nullptr, out, 8, gyreFloat, gyreSum, comms[0], "sendbuff");
  refused(in, nullptr, 8, gyreFloat, gyreSum, comms[0], "recvbuff");
  refused(in, out, 8, 12, gyreSum, comms[0], "datatype 12");
  refused(in, out, 8, -1, gyreSum, comms[0], "datatype -1");
  refused(in, out, 8, gyreFloat, -1, comms[0], "op -1");
  refused(in, out, 8, gyreFloat, 99, comms[0], "op 99");
  refused(in, out, 8, gyreFloat, gyreBxor, comms[0], "integers");
  refused(in, out, SIZE_MAX / 2, gyreFloat, gyreSum, comms[0], "count");
  refused(in, out, SIZE_MAX, gyreUint8, gyreSum, comms[0], "count");
  refused(in, out, std::size_t{1} << 45, gyreFloat, gyreSum, comms[0], "address space");
  refused(in, in + 1, 4, gyreFloat, gyreSum, comms[0], "overlap");
  const std::size_t four = 4, at_once = 0, at_two = 2;
  // A rank's own block may lie in its place of the whole; gyreAlltoAllv takes no overlap at all.
  CHECK(gyreAllGatherv(in, 4, in, &four, &at_once, gyreFloat, comms[0], nullptr) == gyreSuccess);
  CHECK(gyreAllGatherv(in, 4, in, &four, &at_two, gyreFloat, comms[0], nullptr) ==
        gyreInvalidArgument);
  CHECK(mentions(last_error(), "overlap"));
  for (float* const got : {in, in + 1}) {
    CHECK(gyreAlltoAllv(in, &four, &at_once, got, &four, &at_once, gyreFloat, comms[0], nullptr) ==
          gyreInvalidArgument);
    CHECK(mentions(last_error(), "overlap"));
  }
  CHECK(in[1] == 2);
  CHECK(out[0] == 0);
  CHECK(gyreAllReduce(in, out, 8, gyreFloat, gyreSum, comms[0], nullptr) == gyreSuccess);
  CHECK(out[7] == 8);
  CHECK(gyreAllReduce(nullptr, nullptr, 0, gyreFloat, gyreSum, comms[0], nullptr) == gyreSuccess);
  CHECK(gyreAllReduce(in, out, 8, gyreFloat, gyreSum, comms[0],
                      reinterpret_cast<gyreStream_t>(0x5)) == gyreInvalidArgument);

  CHECK(gyreCommCount(comms[0], nullptr) == gyreInvalidArgument);
  CHECK(gyreCommGetAsyncError(comms[0], nullptr) == gyreInvalidArgument);
  gyreComm_t none = nullptr;
  gyreUniqueId id = {};
  CHECK(gyreCommInitRank(&none, 0, id, 0) == gyreInvalidArgument);
  CHECK(mentions(last_error(), "nranks = 0 is not positive"));
  CHECK(gyreCommInitAll(&none, 0, nullptr) == gyreInvalidArgument);
  CHECK(mentions(last_error(), "ndev = 0 is not positive"));
  CHECK(gyreCommInitRank(&none, 2, id, 2) == gyreInvalidArgument);
  CHECK(gyreCommInitRank(&none, 2, id, -1) == gyreInvalidArgument);
  CHECK(gyreCommInitRank(nullptr, 1, id, 0) == gyreInvalidArgument);
  CHECK(gyreCommInitRank(&none, 1, id, 0) != gyreSuccess);  // not an id
  CHECK(none == nullptr);

  const gyreComm_t stale = comms[0];
  destroy_all(comms);
  CHECK(gyreCommDestroy(stale) == gyreInvalidArgument);
  CHECK(gyreCommAbort(stale) == gyreInvalidArgument);
  CHECK(gyreCommDestroy(nullptr) == gyreInvalidArgument);
  refused(in, out, 8, gyreFloat, gyreSum, stale, "destroyed");
}

TEST_CASE("what was refused on a communicator is its last error", "[comm]") {
  auto comms = all_in_one_thread(1);
  CHECK(gyreCommCount(comms[0], nullptr) == gyreInvalidArgument);
  CHECK(mentions(gyreGetLastError(comms[0]), "count is NULL"));
  void* handle = nullptr;
  int buffer[4] = {};
  CHECK(gyreCommRegister(comms[0], nullptr, 4, &handle) == gyreInvalidArgument);
  CHECK(mentions(gyreGetLastError(comms[0]), "buff is NULL"));
  CHECK(gyreCommRegister(comms[0], buffer, sizeof buffer, &handle) == gyreSuccess);
  CHECK(gyreCommDeregister(comms[0], handle) == gyreSuccess);
  CHECK(gyreCommDeregister(comms[0], handle) == gyreInvalidArgument);
  CHECK(mentions(gyreGetLastError(comms[0]), "was not registered"));
  destroy_all(comms);
}

TEST_CASE("what this build lacks says so", "[comm]") {
  int device = 0;
  gyreComm_t comm = nullptr;
  CHECK(gyreCommInitAll(&comm, 1, &device) == gyreInvalidUsage);
  CHECK(mentions(last_error(), "CUDA"));
}

TEST_CASE("a bad setting or config refuses the communicator, naming it", "[comm]") {
  const auto refused = [](const Variables& variables, const std::string& word) {
    const WithVariables with(variables);
    gyreComm_t comm = nullptr;
    CHECK(gyreCommInitAll(&comm, 1, nullptr) != gyreSuccess);
    INFO(last_error());
    CHECK(mentions(last_error(), word));
  };
  refused({{"GYRE_TIMEOUT", "4abc"}}, "GYRE_TIMEOUT=\"4abc\"");
  refused({{"GYRE_TIMEOUT", ""}}, "GYRE_TIMEOUT=\"\"");
  refused({{"GYRE_ALGO", "rnig"}}, "\"rnig\"");
  refused({{"GYRE_PROTO", "LL256"}}, "\"LL256\"");
  refused({{"GYRE_TRANSPORT", "smh"}}, "\"smh\"");
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  config.magic = 7;
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidArgument);
  config = GYRE_CONFIG_INITIALIZER;
  config.reproducible = 5;
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreInvalidArgument);
  CHECK(mentions(last_error(), "reproducible"));
  // A caller with an older, shorter struct.
  config = GYRE_CONFIG_INITIALIZER;
  config.size = offsetof(gyreConfig_t, device);
  CHECK(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreSuccess);
  CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

TEST_CASE("a call refused inside a group spoils the group, and nothing of it runs", "[comm]") {
  auto comms = all_in_one_thread(2);
  float values[2] = {1, 2};
  REQUIRE(gyreGroupStart() == gyreSuccess);
  CHECK(sum_one(&values[0], comms[0]) == gyreSuccess);
  CHECK(gyreAllReduce(&values[1], nullptr, 1, gyreFloat, gyreSum, comms[1], nullptr) ==
        gyreInvalidArgument);
  CHECK(gyreGroupEnd() == gyreInvalidArgument);
  CHECK(mentions(last_error(), "nothing of the group"));
  CHECK(values[0] == 1);
  CHECK(gyreGroupEnd() == gyreInvalidUsage);
  destroy_all(comms);
}

TEST_CASE("an init refused inside a group spoils the group, and nobody waits for it", "[comm]") {
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  const bool all = GENERATE(false, true);
  const int none = -2;
  gyreComm_t comm = nullptr, refused = nullptr;
  REQUIRE(gyreGroupStart() == gyreSuccess);
  CHECK(gyreCommInitRank(&comm, 2, id, 0) == gyreSuccess);
  CHECK((all ? gyreCommInitAll(&refused, 1, &none) : gyreCommInitRank(&refused, 2, id, 2)) ==
        gyreInvalidArgument);
  CHECK(gyreGroupEnd() == gyreInvalidArgument);
  CHECK(mentions(last_error(), std::string("nothing of the group was carried out: ") +
                                   (all ? "devlist[0] = -2" : "rank 2 is not from 0")));
  CHECK(refused == nullptr);
  REQUIRE(comm != nullptr);
  CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

TEST_CASE("a rank that does not come is named when the deadline passes", "[comm]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = 300;
  on_ranks(
      3,
      [](int rank, gyreComm_t comm, Complaints& complaints) {
        float value = 1;
        (void)sum_one(&value, comm);
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::seconds(1));
          gyreResult_t lasting = gyreSuccess;
          (void)gyreCommGetAsyncError(comm, &lasting);
          complaints.expect(lasting == gyreTimeout || lasting == gyreRemoteError,
                            "no lasting error");
          return;
        }
        const gyreResult_t result = sum_one(&value, comm);
        const std::string text = gyreGetLastError(comm);
        complaints.expect(result == gyreTimeout || result == gyreRemoteError,
                          "not a timeout: " + text);
        complaints.expect(mentions(text, "rank 2"), "rank 2 is not named: " + text);
      },
      &config);
}

TEST_CASE("a deadline can be raised and lowered, also of a call that is under way", "[comm]") {
  struct Case {
    int first_ms, then_ms;
    bool ends_well;
  };
  // Rank 1 comes after 2 s, and the deadline changes after 0.1 s.
  const Case one = GENERATE(Case{900, 60'000, true}, Case{60'000, 900, false});
  const bool is_under_way = GENERATE(false, true);
  CAPTURE(one.first_ms, is_under_way);
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = one.first_ms;
  on_ranks(
      2,
      [&](int rank, gyreComm_t comm, Complaints& complaints) {
        float value = 1;
        (void)sum_one(&value, comm);
        complaints.expect(gyreCommSetTimeout(comm, 0) == gyreInvalidArgument, "0 ms was taken");
        const auto change = [&] {
          complaints.expect(gyreCommSetTimeout(comm, one.then_ms) == gyreSuccess, "not changed");
        };
        if (!is_under_way) change();
        std::thread changer([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          if (is_under_way) change();
        });
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
        const gyreResult_t result = sum_one(&value, comm);
        changer.join();
        complaints.expect((result == gyreSuccess) == one.ends_well,
                          std::string("ended with ") + gyreGetErrorString(result));
        if (rank == 0 && !one.ends_well) complaints.expect(result == gyreTimeout, "not a timeout");
      },
      &config);
}

TEST_CASE("an abort ends calls on every rank, from another thread too", "[comm]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    float value = 1;
    (void)sum_one(&value, comm);
    if (rank == 1) {
      std::thread([comm] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        (void)gyreCommAbort(comm);
      }).join();
      return;
    }
    const gyreResult_t result = sum_one(&value, comm);
    const std::string text = gyreGetLastError(comm);
    complaints.expect(result == gyreRemoteError || result == gyreAborted, "not aborted: " + text);
    complaints.expect(mentions(text, "rank 1"), "rank 1 is not named: " + text);
    // Lasting: the next call fails at once.
    complaints.expect(sum_one(&value, comm) != gyreSuccess, "a broken communicator went on");
  });
}

TEST_CASE("gyreCommFinalize tells that another rank has aborted", "[comm]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    float value = 1;
    complaints.expect(sum_one(&value, comm) == gyreSuccess, gyreGetLastError(comm));
    if (rank == 1) return (void)gyreCommAbort(comm);
    // Nothing else of this rank asks for it.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    gyreResult_t result = gyreSuccess;
    while (result == gyreSuccess && std::chrono::steady_clock::now() < until)
      result = gyreCommFinalize(comm);
    complaints.expect(result == gyreRemoteError, gyreGetErrorString(result));
    complaints.expect(mentions(gyreGetLastError(comm), "rank 1"), gyreGetLastError(comm));
  });
}

TEST_CASE("after an abort nobody touches the buffers of a call that has returned", "[comm]") {
  // Long enough that the abort comes in the middle; unmapped at once, so that a late touch crashes.
  constexpr std::size_t count = 16 << 20;
  const WithVariables variables(Variables{{"GYRE_PROTO", "Direct"}, {"GYRE_ALGO", "twoshot"}});
  for (int round = 0; round < 12; ++round) {
    on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      void* const memory = mmap(nullptr, 2 * count * sizeof(float), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      if (memory == MAP_FAILED) return complaints.add("no memory");
      float warm = 1;
      (void)sum_one(&warm, comm);
      std::thread breaker;
      if (rank == round % 3)
        breaker = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(1 + 2 * round));
          (void)gyreCommAbort(comm);
        });
      auto* const input = static_cast<float*>(memory);
      gyreResult_t result = gyreSuccess;
      while (result == gyreSuccess)
        result = gyreAllReduce(input, input + count, count, gyreFloat, gyreSum, comm, nullptr);
      munmap(memory, 2 * count * sizeof(float));
      if (breaker.joinable()) breaker.join();
      complaints.expect(
          result == gyreRemoteError || result == gyreAborted || result == gyreInvalidArgument,
          std::string("not aborted: ") + gyreGetErrorString(result));
    });
  }
}

TEST_CASE("a second thread inside one communicator is turned away", "[comm]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    float value = 1;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (rank == 0) {
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        float mine = 1;
        (void)gyreGroupStart();
        (void)sum_one(&mine, comm);
        complaints.expect(gyreGroupEnd() == gyreInvalidUsage, "a group came in");
        complaints.expect(mentions(gyreGetLastError(comm), "another thread"), "it was not told");
        complaints.expect(sum_one(&mine, comm) == gyreInvalidUsage, "two threads were inside");
      });
      complaints.expect(sum_one(&value, comm) == gyreSuccess, gyreGetLastError(comm));
      other.join();
      return;
    }
    complaints.expect(sum_one(&value, comm) == gyreSuccess, gyreGetLastError(comm));
  });
}

// Least squares over the first `count` points: y = base + slope x.
std::pair<double, double> fitted_line(const std::vector<double>& x, const std::vector<double>& y,
                                      std::size_t count) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < count; ++i)
    sx += x[i], sy += y[i], sxx += x[i] * x[i], sxy += x[i] * y[i];
  const auto n = static_cast<double>(count);
  const double slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
  return {(sy - slope * sx) / n, slope};
}

TEST_CASE("256 ranks of one process cost it no threads, and few descriptors and pages each",
          "[comm]") {
  auto warm = all_in_one_thread(2);
  destroy_all(warm);
  std::vector<double> logs, kibs, files;
  std::printf("%6s %10s %12s %14s %12s\n", "ranks", "init ms", "threads", "descriptors",
              "KiB a rank");
  for (int n : {2, 16, 64, 256}) {
    const int threads_before = count_entries("/proc/self/task");
    const int descriptors_before = count_entries("/proc/self/fd");
    const double resident_before = resident_mib();
    const auto start = std::chrono::steady_clock::now();
    auto comms = all_in_one_thread(n);
    const double init_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    std::vector<float> values(static_cast<std::size_t>(n), 1.0F);
    REQUIRE(gyreGroupStart() == gyreSuccess);
    for (std::size_t rank = 0; rank < values.size(); ++rank)
      REQUIRE(sum_one(&values[rank], comms[rank]) == gyreSuccess);
    REQUIRE(gyreGroupEnd() == gyreSuccess);
    CHECK(std::accumulate(values.begin(), values.end(), 0.0F) ==
          static_cast<float>(n) * static_cast<float>(n));
    const int threads = count_entries("/proc/self/task") - threads_before;
    const int descriptors = count_entries("/proc/self/fd") - descriptors_before;
    const double kib = (resident_mib() - resident_before) * 1024 / n;
    std::printf("%6d %10.1f %12d %14d %12.1f\n", n, init_ms, threads, descriptors, kib);
    CHECK(init_ms < 15000);
    CHECK(threads <= 0);
    logs.push_back(std::log2(n));
    kibs.push_back(kib);
    files.push_back(static_cast<double>(descriptors) / n);
    destroy_all(comms);
  }
  // What the three smaller sizes promise for the largest, were growth logarithmic.
  for (const auto& [what, found] : {std::pair("KiB", &kibs), std::pair("descriptors", &files)}) {
    const auto [base, slope] = fitted_line(logs, *found, 3);
    const double promised = base + slope * logs.back();
    std::printf("%s a rank over n = 2, 16, 64: %.2f + %.2f log2(n); at 256: %.2f, found %.2f\n",
                what, base, slope, promised, found->back());
    CHECK(found->back() <= 1.5 * std::max(promised, 1.0));
  }
}

}  // namespace communicator_test
