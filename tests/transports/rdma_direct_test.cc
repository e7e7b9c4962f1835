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

namespace rdma_direct_test {

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

// All ranks, until they are done or one fails: the control plane would tell the others of it. A
// rank that is blocked does what a thread does that waits for long.
Status run_or_fail(Scene& scene, RdmaCalls& calls) {
  const auto all = [&](auto&& act) {
    for (int rank = 0; rank < scene.job.size(); ++rank) act(scene.job.launch(rank), rank);
  };
  all([&](Launch&, int rank) { scene.job.begin(rank, calls.call(rank)); });
  Status failed(Code::Timeout, "all ranks are blocked");
  bool is_over = false;
  for (std::int64_t turn = 0; turn < 2000 && !is_over; ++turn) {
    bool are_done = true;
    all([&](Launch& launch, int) {
      const Launch::State state = launch.advance();
      are_done &= state == Launch::State::done;
      Status found = state == Launch::State::failed ? launch.error() : Status();
      if (state == Launch::State::blocked) {
        WaitSet set;
        (void)launch.arm(set);
        launch.disarm();
        found = launch.look_at_peers(turn * ns_per_s, 2 * ns_per_s);
      }
      if (found.ok() || is_over) return;
      failed = found;
      is_over = true;
    });
    if (!are_done) continue;
    failed = {};
    is_over = true;
  }
  if (!failed.ok())
    all([](Launch& launch, int) { CHECK(launch.recall().in_use == Launch::InUse::no); });
  return failed;
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

TEST_CASE("every failure of a call is an error, or leaves the same bits, and nothing behind",
          "[rdma]") {
  struct Machine {
    FakeVerbsOptions nics;
    int lost;  // the completion whose failure costs a port; 0: none
  };
  const Collective collective =
      GENERATE(Collective::all_gather, Collective::all_reduce, Collective::all_to_all);
  const Machine machine = GENERATE(Machine{{}, 0}, Machine{two_nics(), 0}, Machine{two_nics(), 4});
  const RdmaCall what{collective, 8'000, false, plan::Protocol::direct, 16 << 10};
  const char* const algorithm = collective == Collective::all_to_all ? "pairwise" : "ring";
  std::vector<std::byte> expected;
  int failures = 0;
  for (const std::string_view call : fallible_verbs())
    for (int k = 1;; k += 1 + k / 4) {
      CAPTURE(plan::collective_name(collective), machine.nics.devices.size(), machine.lost, call,
              k);
      Network network(machine.nics);
      int uses = 0;
      {
        Scene scene(algorithm, collective, 3);
        RdmaCalls calls(scene.ranks, scene.job, what);
        if (expected.empty()) {
          REQUIRE(text_of(run_or_fail(scene, calls)) == "");
          expected = calls.results();
          calls.next();
        }
        if (machine.lost > 0) network.fake.fail_completion(IBV_WC_RETRY_EXC_ERR, machine.lost);
        uses = -network.fake.calls(call);
        network.fake.fail_call(call, k);
        const Status status = run_or_fail(scene, calls);
        uses += network.fake.calls(call);
        if (status.ok()) CHECK(calls.results() == expected);
        CHECK(status.code() != Code::Timeout);
        CHECK(status.code() != Code::InternalError);
        failures += !status.ok();
      }
      CHECK(network.fake.live() == "");
      if (uses < k) break;
    }
  CHECK(failures > 0);
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

}  // namespace rdma_direct_test
