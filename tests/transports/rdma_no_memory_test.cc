// rdma and the memory that it allocates: a call that begins while there is none has lent all or
// nothing, an end that is destroyed then harms nobody, and many calls keep no more than one does.
#include "tests/support/base/failing_allocations.h"
#include "tests/support/catch.h"
#include "tests/support/exec/rdma_job.h"

#include <functional>
#include <new>
#include <random>
#include <utility>
#include <vector>

namespace rdma_no_memory_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;
using plan::Collective;

TEST_CASE("where an allocation fails as a call begins, its bytes are copied", "[rdma]") {
  constexpr FifoShape shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 16 << 10};
  plan::PlanRequest request;
  request.collective = Collective::all_gather;
  request.rank_count = 2;
  std::vector<std::byte> expected;
  int left = 0, k = 0;
  for (; left == 0; ++k) {
    CAPTURE(k);
    const Network network;
    RdmaRanks ranks(2, shape);
    Job job("ring", request, shape, false, ranks.connector());
    RdmaCalls calls(ranks, job,
                    {Collective::all_gather, 40'000, false, plan::Protocol::direct, 16 << 10});
    std::mt19937_64 random(1);
    job.run(calls.calls(), random);  // what is made once is there
    calls.next();
    for (int rank = 0; rank < 2; ++rank) {
      bool has_thrown = false;
      until_failure = rank == 0 ? k : 0;
      try {
        job.begin(rank, calls.call(rank));
      } catch (const std::bad_alloc&) {
        has_thrown = true;
      }
      const int rest = std::exchange(until_failure, 0);
      left = rank == 0 && k > 0 ? rest : left;
      CHECK_FALSE(has_thrown);
    }
    for (int turn = 0, done = 0; done < 3 && turn < 10'000; ++turn)
      for (int rank = 0; rank < 2; ++rank)
        if ((done >> rank & 1) == 0 && job.launch(rank).advance() == exec::Launch::State::done)
          done |= 1 << rank;
    if (expected.empty()) expected = calls.results();
    CHECK(calls.results() == expected);
  }
  CHECK(k > 2);
}

TEST_CASE("what a sender notes of lent memory does not grow from call to call", "[rdma]") {
  const Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  RankBuffer one(pair.sending, 8192, true), other(pair.sending, 8192, true);
  Carrier* const carrier = pair.link.sender->carrier();
  REQUIRE(carrier != nullptr);
  largest_allocation = 0;
  for (int call = 0; call < 5000; ++call)
    for (RankBuffer* const buffer : {&one, &other})
      REQUIRE(carrier->hold(buffer->data(), 8192) != nullptr);
  CHECK(largest_allocation < 4096);
}

namespace {

// Destroys one end, where each allocation fails in turn; how many there are.
int count_at_end(const std::function<void(Network&)>& prepare,
                 const std::function<std::unique_ptr<Connection>&(Link&)>& end, bool are_joined) {
  for (int k = 1;; ++k) {
    CAPTURE(k);
    Network network;
    bool has_failed = false;
    {
      Side receiving(Kind::rdma), sending(Kind::rdma);
      Link link;
      if (are_joined) {
        link = open_link(receiving, sending, small_shape);
        REQUIRE(text_of(link.status) == "");
      } else {
        auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive},
                                                     small_shape, sending.identity);
        REQUIRE(listening.ok());
        link.receiver = std::move(listening->connection);
      }
      prepare(network);
      std::unique_ptr<Connection>& ending = end(link);
      until_failure = k;
      ending.reset();
      has_failed = std::exchange(until_failure, 0) == 0;
    }
    CHECK(network.fake.live() == "");
    if (!has_failed) return k - 1;
  }
}

std::unique_ptr<Connection>& sender_of(Link& link) { return link.sender; }
std::unique_ptr<Connection>& receiver_of(Link& link) { return link.receiver; }
void prepare_nothing(Network&) {}
void fail_post(Network& network) { network.fake.fail_call("post_send", 1); }

}  // namespace

TEST_CASE("a transport ends without memory while a last notice has not left", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  pair.link.sender.reset();
  network.fake.fail_call("poll_cq", 1);
  all_fail = true;
  pair.sending.transport.reset();
  all_fail = false;
  pair.link.receiver.reset();
  pair.receiving.transport.reset();
  CHECK(network.fake.live() == "");
}

TEST_CASE("where an allocation fails as a connection ends, the process lives on", "[rdma]") {
  CHECK(count_at_end(prepare_nothing, sender_of, true) > 0);
  CHECK(count_at_end(prepare_nothing, receiver_of, true) > 0);
  CHECK(count_at_end(fail_post, sender_of, true) > 0);
  CHECK(count_at_end(fail_post, receiver_of, true) > 0);
  CHECK(count_at_end(prepare_nothing, receiver_of, false) > 0);
}

}  // namespace rdma_no_memory_test
