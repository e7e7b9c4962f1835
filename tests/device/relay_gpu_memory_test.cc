// Relays whose rings lie in the memory of GPUs, which NICs read and write (GPUDirect RDMA). Memory
// of the host plays the GPUs'. What a fake NIC writes there is not there until the same NIC has
// read there: so a message that is told of too early is wrong.
#include "tests/support/device/relay_pair.h"
#include "tests/support/transports/rdma_pair.h"

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace relay_gpu_memory_test {

using namespace gyre;
using namespace gyre::exec;
using namespace gyre::tests;

namespace {

constexpr DeviceShape shape = {
    .channels = 3, .slot_bytes = 64 << 10, .slot_shift = 1, .ll_shift = 2, .ll128_shift = 2};
constexpr std::uint64_t messages = 60;

bool is_in(const std::byte* rings, const void* place) {
  return place >= rings && place < rings + shape.relay_rings_bytes();
}

// Both ends' rings are of GPUs, or those that `options` says.
RelayPair::Options on_gpus(FakeVerbs& fake, RelayPair::Options options, bool delays_writes = true) {
  options.shape = shape;
  options.before_relays = [&fake, options, delays_writes](const RelayPair& pair) {
    fake.know_gpus(
        {.is_there =
             [&pair, options](const void* place) {
               for (std::size_t i = 0; i < 2; ++i)
                 if ((options.own_on_gpu[i] && is_in(pair.halves[i].link.own_rings, place)) ||
                     (options.mirror_on_gpu[i] && is_in(pair.halves[i].link.peers_rings, place)))
                   return true;
               return false;
             },
         .by_address = true,
         .delays_writes = delays_writes});
  };
  return options;
}
RelayPair::Options all_on_gpus(FakeVerbs& fake, bool delays_writes = true) {
  return on_gpus(fake, {.mirror_on_gpu = {true, true}, .own_on_gpu = {true, true}}, delays_writes);
}

std::uint64_t all_bytes() {
  std::uint64_t bytes = 0;
  for (std::uint64_t number = 0; number < messages; ++number) bytes += relayed_bytes(shape, number);
  return bytes * shape.channels;
}

// Of both relays; empty if neither has failed.
std::string failure(RelayPair& pair) {
  std::string text;
  for (auto& relay : pair.relays) {
    bool moved = false;
    text += relay->advance(moved).message();
  }
  return text;
}

}  // namespace

TEST_CASE("messages of rings in GPUs' memory are told of when they are there", "[relay]") {
  const std::uint64_t seed = GENERATE(0ULL, 1ULL, 2ULL);  // 0: at once, in order
  const bool sends = GENERATE(false, true), receives = GENERATE(false, true);
  const bool peer_has_none = GENERATE(false, true);
  CAPTURE(seed, sends, receives, peer_has_none);
  Network network({.devices = two_nics().devices, .seed = seed});
  RelayPair pair(Kind::rdma, on_gpus(network.fake, {.lends = {false, !peer_has_none},
                                                    .mirror_on_gpu = {sends, false},
                                                    .own_on_gpu = {receives, false}}));
  const bool came = pair.stream(messages, 0, 3, rng_seed());
  INFO(failure(pair));
  REQUIRE(came);
  // Whatever its length: the relay does not reach it.
  const FakeVerbs& fake = network.fake;
  CHECK((fake.bytes_from(pair.halves[0].link.peers_rings) == all_bytes()) == sends);
  CHECK((fake.bytes_into(pair.halves[0].link.own_rings) == all_bytes()) == receives);
  CHECK(fake.bytes_on_way_to_gpus() == 0);
  pair.leave();
}

TEST_CASE("a GPU that sees what NICs write in order needs no flush", "[relay]") {
  const bool needs_flush = GENERATE(false, true);
  Network network;
  RelayPair::Options options = all_on_gpus(network.fake, needs_flush);
  options.needs_flush = needs_flush;
  RelayPair pair(Kind::rdma, options);
  // A queue pair at each end of each way, and one for flushes at each receiving end.
  CHECK(network.fake.calls("create_qp") == (needs_flush ? 6 : 4));
  const bool came = pair.stream(messages, 0, 3, rng_seed());
  INFO(failure(pair));
  REQUIRE(came);
  CHECK(network.fake.bytes_into(pair.halves[0].link.own_rings) == all_bytes());
  pair.leave();
}

TEST_CASE("a rail that the peer has lost is flushed, and the relay goes on", "[relay]") {
  const int k = GENERATE(range(1, 120, 7));
  CAPTURE(k);
  Network network(two_nics());
  RelayPair pair(Kind::rdma, all_on_gpus(network.fake));
  const bool came = pair.stream(messages, 0, 2, rng_seed());
  INFO(failure(pair));
  REQUIRE(came);
  network.fake.fail_completion(IBV_WC_RETRY_EXC_ERR, k);
  const bool all_came = pair.stream(2 * messages, 0, 2, rng_seed() + 1);
  // The completion may be one of a flush, which nothing can take the place of.
  const std::string why = failure(pair);
  INFO(why);
  CHECK((all_came || why.find("whether all that it wrote to the GPU's memory") != why.npos));
  if (all_came) pair.leave();
}

TEST_CASE("a port that goes down with what it wrote to a GPU fails its relays", "[relay]") {
  Network network(two_nics());
  RelayPair pair(Kind::rdma, all_on_gpus(network.fake));
  const bool came = pair.stream(messages, 0, 2, rng_seed());
  INFO(failure(pair));
  REQUIRE(came);
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  std::thread loses([&] {
    for (int turn = 0; turn < 200; ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      network.fake.give_up();
    }
  });
  const bool all_came = pair.stream(2 * messages, 0, 2, rng_seed() + 1);
  loses.join();
  CHECK_FALSE(all_came);
  const std::string why = failure(pair);
  INFO(why);
  CHECK(why.find("port fake0:1 is lost, and whether all that it wrote to the GPU's memory is "
                 "there cannot be found out") != why.npos);
}

TEST_CASE("each completion fails once, and no message comes wrong", "[relay]") {
  const std::uint64_t seed = GENERATE(0ULL, 1ULL);
  int failures = 0;
  for (int k = 1; k < 200; ++k) {
    CAPTURE(seed, k);
    Network network({.seed = seed});
    RelayPair pair(Kind::rdma, all_on_gpus(network.fake));
    network.fake.fail_completion(IBV_WC_REM_OP_ERR, k);
    if (pair.stream(20, 0, 2, rng_seed())) continue;
    ++failures;
    CHECK(failure(pair) != "");
  }
  CHECK(failures > 10);
}

// Among them: the rings' registration, the making of queue pairs for flushes, and each flush.
TEST_CASE("each call of libibverbs fails once at a relay on GPUs, and no message comes wrong",
          "[relay]") {
  const std::uint64_t seed = GENERATE(0ULL, 1ULL);
  const std::string_view call = GENERATE(from_range(fallible_verbs()));
  constexpr int most = 1500;  // polls go on for as long as it takes
  int failures = 0;
  for (int k = 1; k <= most; ++k) {
    CAPTURE(seed, call, k);
    int uses = 0;
    {
      Network network({.seed = seed});
      RelayPair::Options options = all_on_gpus(network.fake);
      options.before_relays = [&, know_gpus = options.before_relays](const RelayPair& pair) {
        know_gpus(pair);
        uses = -network.fake.calls(call);
        network.fake.fail_call(call, k);
      };
      RelayPair pair(Kind::rdma, options);
      const bool came = pair.stream(8, 0, 2, rng_seed());
      uses += network.fake.calls(call);
      if (!came) CHECK(failure(pair) != "");
      failures += !came;
    }
    if (uses < k) break;
  }
  const bool is_needed = call == "post_send" || call == "reg_mr" || call == "modify_qp";
  CHECK((failures > 0 || !is_needed));
}

TEST_CASE("what came through the host is refused where only a NIC reaches", "[relay]") {
  Network network;
  RelayPair::Options options = on_gpus(network.fake, {.own_on_gpu = {true, false}});
  // The NIC does not take the rings after all.
  options.before_relays = [&](const RelayPair&) { network.fake.fail_call("reg_mr", 1); };
  RelayPair pair(Kind::rdma, options);
  CHECK_FALSE(pair.stream(messages, 0, 2, rng_seed()));
  CHECK(failure(pair).find("came through the host, and was to go to the GPU's memory") !=
        std::string::npos);
}

}  // namespace relay_gpu_memory_test
