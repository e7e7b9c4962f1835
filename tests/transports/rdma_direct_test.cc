// Collectives over rdma whose messages stay in memory that callers lend: the same bits as through
// slots, which bytes are copied, and that nothing late lands after a failure.
#include "tests/support/catch.h"
#include "tests/support/exec/rdma_job.h"

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;
using exec::Launch;
using plan::Collective;

namespace {

constexpr FifoShape shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 16 << 10};

plan::PlanRequest request_of(Collective collective, int ranks) {
  plan::PlanRequest request;
  request.collective = collective;
  request.rank_count = ranks;
  return request;
}

struct Scene {
  Scene(std::string_view algorithm, Collective collective, int ranks_count)
      : ranks(ranks_count, shape),
        job(algorithm, request_of(collective, ranks_count), shape, false, ranks.connector()) {}
  RdmaRanks ranks;
  Job job;
};

std::vector<std::byte> run(Scene& scene, RdmaCalls& calls, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  scene.job.run(calls.calls(), random);
  return calls.results();
}

constexpr Collective all_collectives[] = {Collective::all_reduce, Collective::reduce_scatter,
                                          Collective::all_gather, Collective::broadcast,
                                          Collective::reduce,     Collective::all_to_all,
                                          Collective::gather,     Collective::scatter};

}  // namespace

TEST_CASE("lent or not, in place or not, every algorithm gives the same bits as through slots",
          "[rdma]") {
  const auto [count, in_place, seed] = GENERATE(table<int, bool, std::uint64_t>(
      {{2, false, 0}, {2, true, 0}, {3, false, 0}, {4, true, 0}, {3, false, 7}}));
  for (const plan::Algorithm& algorithm : plan::algorithms())
    for (const Collective collective : all_collectives) {
      // Late messages take their time: two algorithms stand for all.
      const bool is_chosen = seed == 0 || algorithm.name == "ring" || algorithm.name == "tree";
      if (!algorithm.does(collective) || !is_chosen) continue;
      CAPTURE(count, in_place, seed, algorithm.name, plan::collective_name(collective));
      FakeVerbsOptions machine = two_nics();
      machine.seed = seed;
      const Network network(machine, {.qps_per_connection = 2});
      Scene scene(algorithm.name, collective, count);
      std::mt19937_64 random(seed + 1);
      RdmaCall what{collective, 40'000, in_place, plan::Protocol::simple, shape.slot_bytes};
      RdmaCalls staged(scene.ranks, scene.job, what);
      const std::vector<std::byte> expected = run(scene, staged, seed + 1);
      what.protocol = plan::Protocol::direct;
      for (int turn = 0; turn < 3; ++turn) {
        const auto drawn = static_cast<unsigned>(random());
        const unsigned lent = turn == 0 ? ~0U : drawn;
        CAPTURE(turn, lent);
        RdmaCalls direct(scene.ranks, scene.job, what, lent, lent >> 8);
        for (exec::Call& call : direct.calls()) call.sequence = 2U + static_cast<unsigned>(turn);
        CHECK(run(scene, direct, random()) == expected);
      }
      CHECK(network.fake.unexpected() == 0);
    }
}

TEST_CASE("an all-gather of lent memory is copied nowhere", "[rdma]") {
  const auto [algorithm, count] =
      GENERATE(table<const char*, int>({{"ring", 2}, {"ring", 4}, {"twoshot", 3}}));
  CAPTURE(algorithm, count);
  const Network network;
  Scene scene(algorithm, Collective::all_gather, count);
  RdmaCalls calls(scene.ranks, scene.job,
                  {Collective::all_gather, 40'000, false, plan::Protocol::direct, 16 << 10});
  // All enter, and their grants have arrived, before anybody sends.
  for (int rank = 0; rank < count; ++rank) scene.job.begin(rank, calls.call(rank));
  for (int rank = 0; rank < count; ++rank) scene.job.settle(rank);
  scene.job.finish();
  constexpr std::uint64_t block = 160'000;
  const auto others = static_cast<std::uint64_t>(count - 1);
  for (int rank = 0; rank < count; ++rank) {
    const exec::Call& call = calls.call(rank);
    CHECK(network.fake.bytes_into(call.output) == others * block);
    const std::uint64_t forwarded = algorithm == std::string_view("ring") ? others - 1 : 0;
    const std::uint64_t sent_own = algorithm == std::string_view("ring") ? 1 : others;
    CHECK(network.fake.bytes_from(call.input) == sent_own * block);
    CHECK(network.fake.bytes_from(call.output) == forwarded * block);
  }
}

TEST_CASE("memory that nobody lends is never reached by a NIC", "[rdma]") {
  const Network network;
  Scene scene("ring", Collective::all_gather, 3);
  const int registered = network.fake.calls("reg_mr");
  RdmaCalls calls(scene.ranks, scene.job,
                  {Collective::all_gather, 40'000, false, plan::Protocol::direct, 16 << 10}, 0, 0);
  (void)run(scene, calls, 1);
  CHECK(network.fake.calls("reg_mr") == registered);
}

TEST_CASE("where the device registers no more, calls go through slots", "[rdma]") {
  for (int k = 1; k < 8; ++k) {
    CAPTURE(k);
    Network network;
    Scene scene("ring", Collective::all_gather, 3);
    const RdmaCall what{Collective::all_gather, 40'000, false, plan::Protocol::direct, 16 << 10};
    RdmaCalls first(scene.ranks, scene.job, what);
    network.fake.fail_call("reg_mr", k);
    const std::vector<std::byte> expected = run(scene, first, 1);
    RdmaCalls second(scene.ranks, scene.job, what);
    second.next();
    CHECK(run(scene, second, 2) == expected);
  }
}

TEST_CASE("memory that was freed and allocated anew between calls gets new keys", "[rdma]") {
  const Network network;
  Scene scene("ring", Collective::all_gather, 2);
  const RdmaCall what{Collective::all_gather, 40'000, false, plan::Protocol::direct, 16 << 10};
  std::vector<std::byte> expected;
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    const int before = network.fake.calls("dereg_mr");
    {
      RdmaCalls calls(scene.ranks, scene.job, what);
      for (exec::Call& call : calls.calls()) call.sequence = turn + 1;
      const std::vector<std::byte> results = run(scene, calls, turn);
      if (expected.empty()) expected = results;
      CHECK(results == expected);
      CHECK(network.fake.calls("dereg_mr") == before);
    }
    CHECK(network.fake.calls("dereg_mr") == before + 4);
  }
}

TEST_CASE("with two ports every failure of a completion or a post leaves the same bits", "[rdma]") {
  const Collective collective = GENERATE(Collective::all_gather, Collective::all_reduce);
  const RdmaCall what{collective, 30'000, false, plan::Protocol::direct, 16 << 10};
  std::vector<std::byte> expected;
  for (const std::string_view call : {"", "post_send"})
    for (int k = 1;; k += 1 + k / 16) {
      CAPTURE(call, k);
      Network network(two_nics(), {.qps_per_connection = 2});
      Scene scene("ring", collective, 3);
      RdmaCalls calls(scene.ranks, scene.job, what);
      if (expected.empty()) {
        expected = run(scene, calls, 1);
        calls.next();
      }
      const int before = call.empty() ? network.fake.completions() : network.fake.calls(call);
      if (call.empty())
        network.fake.fail_completion(IBV_WC_RETRY_EXC_ERR, k);
      else
        network.fake.fail_call(call, k);
      CHECK(run(scene, calls, 1) == expected);
      CHECK(network.fake.unexpected() == 0);
      const int after = call.empty() ? network.fake.completions() : network.fake.calls(call);
      if (after - before < k) break;
    }
}

TEST_CASE("memory of a call that has failed has no key once it is freed", "[rdma]") {
  const Network network;
  Scene scene("ring", Collective::all_gather, 2);
  const int before = network.fake.calls("dereg_mr");
  {
    RdmaCalls calls(scene.ranks, scene.job,
                    {Collective::all_gather, 40'000, false, plan::Protocol::direct, 16 << 10});
    for (int rank = 0; rank < 2; ++rank) scene.job.begin(rank, calls.call(rank));
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(scene.job.launch(rank).advance() != Launch::State::failed);
      CHECK(scene.job.launch(rank).recall().in_use == Launch::InUse::no);
    }
    CHECK(network.fake.calls("dereg_mr") == before);
  }
  CHECK(network.fake.calls("dereg_mr") >= before + 4);
}

TEST_CASE("nothing lands in memory of a call that has failed", "[rdma]") {
  const std::uint64_t seed = GENERATE(1, 2, 3, 4, 5, 6);
  CAPTURE(seed);
  FakeVerbsOptions machine;
  machine.seed = seed;
  const Network network(machine);
  Scene scene("ring", Collective::all_gather, 3);
  RdmaCalls calls(scene.ranks, scene.job,
                  {Collective::all_gather, 200'000, false, plan::Protocol::direct, 16 << 10});
  for (int rank = 0; rank < 3; ++rank) scene.job.begin(rank, calls.call(rank));
  std::mt19937_64 random(seed);
  for (std::uint64_t turn = random() % 40; turn > 0; --turn)
    for (int rank = 0; rank < 3; ++rank)
      REQUIRE(scene.job.launch(rank).advance() != Launch::State::failed);
  // Rank 0's caller gives up: from here on the memory is its own.
  CHECK(scene.job.launch(0).recall().in_use == Launch::InUse::no);
  exec::Call& own = calls.call(0);
  std::memset(own.output, 0x5a, own.output_bytes);
  std::memset(const_cast<std::byte*>(own.input), 0x77, own.input_bytes);
  bool has_failed[3] = {};
  for (int turn = 0; turn < 100; ++turn) {
    for (int rank = 1; rank < 3; ++rank)
      if (!has_failed[rank])
        has_failed[rank] = scene.job.launch(rank).advance() == Launch::State::failed;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (std::uint64_t i = 0; i < own.output_bytes; ++i)
    if (own.output[i] != std::byte{0x5a}) FAIL("byte " << i << " was written");
  // What the others have taken of it is what it was before.
  const exec::Call& next = calls.call(1);
  for (std::uint64_t i = 0; i < own.input_bytes / 4; ++i) {
    std::int32_t value = 0;
    std::memcpy(&value, next.output + 4 * i, 4);
    if (value != 0 && value != static_cast<std::int32_t>(i) * 7) FAIL("element " << i);
  }
}
