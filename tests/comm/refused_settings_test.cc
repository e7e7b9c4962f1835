// A call that GYRE_ALGO and GYRE_PROTO rule out is refused on all ranks before it changes anything,
// and the communicator stays usable. Every collective, algorithm and protocol.
#include "lib/plan/algorithms.h"
#include "tests/support/catch.h"
#include "tests/support/comm/collective_case.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gyre.h>

#include <array>
#include <atomic>
#include <barrier>
#include <string>
#include <vector>

namespace refused_settings_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

constexpr int ranks = 3;

constexpr Function functions[] = {
    Function::all_reduce,   Function::reduce_scatter,   Function::all_gather,
    Function::broadcast,    Function::reduce,           Function::all_to_all,
    Function::gather,       Function::scatter,          Function::all_to_all_v,
    Function::all_gather_v, Function::reduce_scatter_v,
};

// As the caller knows them, by Function.
constexpr const char* names[] = {"gyreReduceScatter",  "gyreAllGather", "gyreBroadcast",
                                 "gyreReduce",         "gyreAlltoAll",  "gyreGather",
                                 "gyreScatter",        "gyreAlltoAllv", "gyreAllGatherv",
                                 "gyreReduceScatterv", "gyreAllReduce"};

struct Called {
  explicit Called(const CollectiveCase& one) : what(one), buffers(one) {}

  CollectiveCase what;
  CaseBuffers buffers;
};

std::vector<Called> all_calls() {
  std::vector<Called> calls;
  for (const Function function : functions)
    for (const std::size_t count : {std::size_t{3}, std::size_t{20000}})
      calls.emplace_back(CollectiveCase{
          .function = function, .ranks = ranks, .type = ElementType::int32, .count = count});
  return calls;
}

// Every rank sends to the next.
std::string pass_on(int rank, gyreComm_t comm) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  int given = rank, got = -1;
  const bool done = gyreGroupStart() == gyreSuccess &&
                    gyreSend(&given, 1, gyreInt32, next, comm, nullptr) == gyreSuccess &&
                    gyreRecv(&got, 1, gyreInt32, before, comm, nullptr) == gyreSuccess &&
                    gyreGroupEnd() == gyreSuccess;
  if (!done) return gyreGetLastError(comm);
  return got == before ? "" : "a wrong value was sent";
}

struct Refusals {
  std::atomic<int> refused{0};
  std::barrier<> all{ranks};
};

void call_one(Called& called, int rank, gyreComm_t comm, Refusals& refusals,
              Complaints& complaints) {
  auto& [one, buffers] = called;
  const gyreResult_t result = buffers.call(rank, comm);
  const std::string said = gyreGetLastError(comm);
  if (result == gyreInvalidUsage) ++refusals.refused;
  complaints.expect(result == gyreSuccess || result == gyreInvalidUsage, one.shown() + ": " + said);
  const auto says = [&](const std::string& words) { return said.find(words) != said.npos; };
  const std::string without = "no algorithm for ";
  const std::string name = names[static_cast<int>(one.function)];
  if (result == gyreInvalidUsage)
    complaints.expect(says("GYRE_") && (!says(without) || says(without + name + " (")),
                      one.shown() + " says " + said);
  refusals.all.arrive_and_wait();
  const int refused = refusals.refused;
  complaints.expect(refused == 0 || refused == ranks, one.shown() + ": refused by some ranks only");
  if (refused == 0) complaints.expect(buffers.wrong(rank).empty(), one.shown() + ": wrong");
  gyreResult_t lasting = gyreInternalError;
  complaints.expect(gyreCommGetAsyncError(comm, &lasting) == gyreSuccess && lasting == gyreSuccess,
                    one.shown() + " broke the communicator");
  const std::string wrong = pass_on(rank, comm);
  complaints.expect(wrong.empty(), "after " + one.shown() + ": " + wrong);
  refusals.all.arrive_and_wait();
  refusals.refused = 0;
  refusals.all.arrive_and_wait();
}

void call_all(std::vector<Called>& calls, const Variables& settings) {
  const WithVariables set(settings);
  for (Called& called : calls) called.buffers.renew();
  Refusals refusals;
  for (const auto& [name, value] : settings) UNSCOPED_INFO(name << "=" << value);
  on_ranks(ranks, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    for (Called& called : calls) call_one(called, rank, comm, refusals, complaints);
  });
}

}  // namespace

TEST_CASE("what GYRE_ALGO or GYRE_PROTO rules out leaves the communicator whole", "[settings]") {
  const std::string transport = GENERATE("shm", "tcp");
  const std::string protocol = GENERATE("LL", "Simple", "Direct", "LL128", "");
  std::vector<Called> calls = all_calls();
  for (const plan::Algorithm& algorithm : plan::algorithms())
    for (const char* before : {"", "^", "alltoall:", "allreduce:"}) {
      Variables settings{{"GYRE_TRANSPORT", transport},
                         {"GYRE_SOCKET_IFNAME", "lo"},
                         {"GYRE_TIMEOUT", "10"},
                         {"GYRE_ALGO", before + std::string(algorithm.name)}};
      if (!protocol.empty()) settings["GYRE_PROTO"] = protocol;
      call_all(calls, settings);
    }
}

TEST_CASE("a non-blocking communicator tells of a call that was refused, once", "[settings]") {
  const WithVariables set(Variables{{"GYRE_ALGO", "alltoall:ring"}});
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  std::array<gyreComm_t, 2> comms{};
  for (int rank = 0; rank < 2; ++rank)
    CHECK(gyreCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], 2, id, rank, &config) ==
          gyreInProgress);
  const auto outcome = [](gyreComm_t comm) {
    gyreResult_t result = gyreInProgress;
    while (result == gyreInProgress) REQUIRE(gyreCommGetAsyncError(comm, &result) == gyreSuccess);
    return result;
  };
  const std::vector<int> given(2, 1);
  std::vector<int> got(4, -1);
  for (gyreComm_t comm : comms) CHECK(outcome(comm) == gyreSuccess);
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(gyreAlltoAll(given.data(), &got[2 * rank], 1, gyreInt32, comms[rank], nullptr) ==
          gyreInProgress);
  for (gyreComm_t comm : comms) {
    CHECK(outcome(comm) == gyreInvalidUsage);
    CHECK_THAT(gyreGetLastError(comm), has_text("GYRE_ALGO"));
    CHECK(outcome(comm) == gyreSuccess);
  }
  CHECK(got == std::vector<int>(4, -1));
  int sum[2] = {1, 1};
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(gyreAllReduce(&sum[rank], &sum[rank], 1, gyreInt32, gyreSum, comms[rank], nullptr) ==
          gyreInProgress);
  for (gyreComm_t comm : comms) CHECK(outcome(comm) == gyreSuccess);
  CHECK((sum[0] == 2 && sum[1] == 2));
  for (gyreComm_t comm : comms) CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

TEST_CASE("a list of algorithms leaves alone the calls that none of them can do", "[settings]") {
  const WithVariables set(Variables{{"GYRE_ALGO", "ring"}});
  on_ranks(ranks, [&](int, gyreComm_t comm, Complaints& complaints) {
    std::vector<int> given(ranks, 1), got(ranks);
    complaints.expect(
        gyreAlltoAll(given.data(), got.data(), 1, gyreInt32, comm, nullptr) == gyreSuccess,
        gyreGetLastError(comm));
  });
}

}  // namespace refused_settings_test
