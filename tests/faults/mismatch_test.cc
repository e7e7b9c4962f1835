// Ranks that make different calls get an error that shows both calls, in that call or the next one,
// on every rank, within a second of waiting. None hangs.
#include "tests/support/base/mentions.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"

#include <chrono>
#include <functional>
#include <vector>

namespace mismatch_test {

using namespace gyre::tests;

namespace {

// Buffers that outlive what a failed call may still do with them.
struct Memory {
  std::vector<float> in = std::vector<float>(300'000, 1), out = std::vector<float>(300'000);
};

using Act = std::function<gyreResult_t(int rank, gyreComm_t comm, Memory& memory)>;

struct Kind {
  const char* name;
  Act usual, odd;                  // what the others call, and what one rank calls instead
  std::vector<const char*> words;  // of both calls
};

gyreResult_t all_reduce(Memory& memory, std::size_t count, gyreDataType_t type, gyreRedOp_t op,
                        gyreComm_t comm) {
  return gyreAllReduce(memory.in.data(), memory.out.data(), count, type, op, comm, nullptr);
}

Act sum_of(std::size_t count) {
  return [count](int, gyreComm_t comm, Memory& memory) {
    return all_reduce(memory, count, gyreFloat, gyreSum, comm);
  };
}

Act broadcast_of(std::size_t count, int root) {
  return [=](int, gyreComm_t comm, Memory& memory) {
    return gyreBroadcast(memory.in.data(), memory.out.data(), count, gyreFloat, root, comm,
                         nullptr);
  };
}

Act both(const Act& first, const Act& second) {
  return [=](int rank, gyreComm_t comm, Memory& memory) {
    const gyreResult_t result = first(rank, comm, memory);
    return result == gyreSuccess ? second(rank, comm, memory) : result;
  };
}

std::vector<Kind> kinds() {
  const Act usual = sum_of(100);
  const Act barrier = [](int, gyreComm_t comm, Memory&) { return gyreBarrier(comm, nullptr); };
  const Act nothing = [](int, gyreComm_t, Memory&) { return gyreSuccess; };
  const Act gather_v = [](int rank, gyreComm_t comm, Memory& memory) {
    int size = 0;
    (void)gyreCommCount(comm, &size);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(size), 50);
    std::vector<std::size_t> places;
    for (int i = 0; i < size; ++i) places.push_back(static_cast<std::size_t>(i) * 60);
    (void)rank;
    return gyreAllGatherv(memory.in.data(), 50, memory.out.data(), counts.data(), places.data(),
                          gyreFloat, comm, nullptr);
  };
  const Act other_gather_v = [](int rank, gyreComm_t comm, Memory& memory) {
    int size = 0;
    (void)gyreCommCount(comm, &size);
    std::vector<std::size_t> counts(static_cast<std::size_t>(size), 50), places;
    counts[static_cast<std::size_t>(rank == 0 ? size - 1 : 0)] = 49;
    for (int i = 0; i < size; ++i) places.push_back(static_cast<std::size_t>(i) * 60);
    return gyreAllGatherv(memory.in.data(), 50, memory.out.data(), counts.data(), places.data(),
                          gyreFloat, comm, nullptr);
  };
  return {
      {"count", usual, sum_of(200), {"gyreAllReduce of 100 float (sum)", "of 200 float"}},
      {"large count", sum_of(300'000), sum_of(299'999), {"of 300000 float", "of 299999 float"}},
      {"type",
       usual,
       [](int, gyreComm_t comm, Memory& memory) {
         return all_reduce(memory, 100, gyreInt32, gyreSum, comm);
       },
       {"100 float", "100 int32"}},
      {"op",
       usual,
       [](int, gyreComm_t comm, Memory& memory) {
         return all_reduce(memory, 100, gyreFloat, gyreMax, comm);
       },
       {"(sum)", "(max)"}},
      {"function",
       usual,
       [](int, gyreComm_t comm, Memory& memory) {
         return gyreAllGather(memory.in.data(), memory.out.data(), 100, gyreFloat, comm, nullptr);
       },
       {"gyreAllReduce", "gyreAllGather"}},
      {"root", broadcast_of(100, 0), broadcast_of(100, 1), {"root 0", "root 1"}},
      // Nobody reads these: only the next call can tell, and it uses other links.
      {"root, unnoticed",
       both(broadcast_of(1000, 0), barrier),
       both(broadcast_of(1000, 1), barrier),
       {"root 0", "root 1"}},
      {"order",
       both(usual, broadcast_of(10, 0)),
       both(broadcast_of(10, 0), usual),
       {"gyreAllReduce", "gyreBroadcast"}},
      {"missing call", both(usual, barrier), barrier, {"gyreAllReduce", "gyreBarrier"}},
      {"extra call", barrier, both(usual, barrier), {"gyreAllReduce", "gyreBarrier"}},
      {"early return", broadcast_of(10, 0), broadcast_of(11, 0), {"of 10 float", "of 11 float"}},
      {"blocks", gather_v, other_gather_v, {"gyreAllGatherv", "blocks"}},
      {"barrier", usual, barrier, {"gyreAllReduce", "gyreBarrier"}},
      {"one call too few at the end", usual, nothing, {"gyreAllReduce of 100", "has left"}},
  };
}

}  // namespace

TEST_CASE("ranks that call different things are told both calls", "[mismatch]") {
  for (const char* transport : {"shm", "tcp"})
    for (const int n : {2, 3, 8})
      for (const Kind& kind : kinds()) {
        const WithVariables variables(Variables{{"GYRE_TRANSPORT", transport}});
        std::vector<Memory> memories(static_cast<std::size_t>(n));
        const int odd = n / 2;
        on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
          const std::string who = std::string(kind.name) + " " + transport +
                                  " n=" + std::to_string(n) + " rank " + std::to_string(rank);
          Memory& memory = memories[static_cast<std::size_t>(rank)];
          const auto start = std::chrono::steady_clock::now();
          // A good call first, so that links are open and others are not.
          (void)sum_of(1)(rank, comm, memory);
          gyreResult_t result = (rank == odd ? kind.odd : kind.usual)(rank, comm, memory);
          const bool leaves = result == gyreSuccess && rank == odd && kind.words.size() == 2 &&
                              std::string(kind.words[1]) == "has left";
          if (leaves) return;
          if (result == gyreSuccess) result = gyreBarrier(comm, nullptr);
          const std::string text = gyreGetLastError(comm);
          const double seconds =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
          complaints.expect(result == gyreMismatch,
                            who + ": " + std::to_string(result) + " " + text);
          for (const char* word : kind.words)
            complaints.expect(mentions(text, word), who + ": " + text);
          complaints.expect(seconds < 3, who + ": after " + std::to_string(seconds) + " s");
        });
      }
}

// A message is two slots long, and rank 1 expects one; or the other way round. Later calls agree.
TEST_CASE("counts of an all-to-all that disagree give no call other data", "[mismatch]") {
  const WithVariables variables(Variables{{"GYRE_BUFFSIZE", "4096"}});
  const std::size_t sent = GENERATE(std::size_t{1024}, std::size_t{2048});
  CAPTURE(sent);
  const std::size_t expected = 3072 - sent;
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const auto peer = static_cast<std::size_t>(1 - rank);
    const std::size_t begins[2] = {0, 0};
    gyreResult_t result = gyreSuccess;
    for (int number = 0; number < 20 && result == gyreSuccess; ++number) {
      const std::vector<float> in(2048, static_cast<float>(number));
      std::vector<float> out(2048, -1);
      std::size_t out_counts[2] = {0, 0}, in_counts[2] = {0, 0};
      out_counts[peer] = number == 0 && rank == 0 ? sent : 1024;
      in_counts[peer] = number == 0 && rank == 1 ? expected : 1024;
      result = gyreAlltoAllv(in.data(), out_counts, begins, out.data(), in_counts, begins,
                             gyreFloat, comm, nullptr);
      const bool is_right = number == 0 || out[0] == in[0];
      complaints.expect(result != gyreSuccess || is_right,
                        "rank " + std::to_string(rank) + " got the data of another call");
    }
    complaints.expect(result == gyreMismatch, "rank " + std::to_string(rank) + ": " +
                                                  std::to_string(result) + " " +
                                                  gyreGetLastError(comm));
  });
}

TEST_CASE("places of a gather that differ are an error", "[mismatch]") {
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const std::vector<float> in(100, 1);
    std::vector<float> out(300);
    const std::size_t counts[2] = {100, 100}, places[2] = {0, rank == 0 ? 100UL : 200UL};
    const gyreResult_t result =
        gyreAllGatherv(in.data(), 100, out.data(), counts, places, gyreFloat, comm, nullptr);
    complaints.expect(result == gyreMismatch, gyreGetLastError(comm));
  });
}

TEST_CASE("without the comparison a message of another call is still an error", "[mismatch]") {
  const WithVariables variables(Variables{{"GYRE_CHECK_CALLS", "0"}});
  std::vector<Memory> memories(2);
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const std::size_t count = rank == 0 ? 10 : 20;
    const gyreResult_t result =
        all_reduce(memories[static_cast<std::size_t>(rank)], count, gyreFloat, gyreSum, comm);
    complaints.expect(result == gyreMismatch, gyreGetLastError(comm));
  });
}

}  // namespace mismatch_test
