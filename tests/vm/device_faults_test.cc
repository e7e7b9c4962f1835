// rdma over this machine's device, whose verbs do once what a NIC or a peer may do wrong: a queue
// pair stops, a key is withdrawn, completions or receives lack room. Both ends are in this thread.
// The errors that calls of verbs return are tests/transports/rdma_test.cc's.
#include "lib/loaded/verbs.h"
#include "lib/transport/slots.h"
#include "tests/support/catch.h"
#include "tests/support/fake_verbs/pair_verbs.h"
#include "tests/support/transports/transport_pair.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

namespace device_faults_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr std::int64_t liveness_ns = 2 * ns_per_s;
constexpr FifoShape shape{4, 2, 64 << 10};

// The device's own verbs, which note what is made. Functions of a table are plain ones, so this is
// the state of the program.
struct Recorded {
  loaded::Verbs own, table;
  std::vector<ibv_qp*> pairs;     // the receiver's come first, as it listens first
  std::vector<ibv_mr*> memories;  // likewise
  std::vector<ibv_mr*> withdrawn;
  bool drops_receives = false;
  int most_entries = 1 << 20;
};
Recorded recorded;

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  ibv_qp* const made = recorded.own.create_qp(domain, wanted);
  if (made != nullptr) recorded.pairs.push_back(made);
  return made;
}

ibv_mr* reg_mr(ibv_pd* domain, void* start, std::size_t bytes, int access) {
  ibv_mr* const made = recorded.own.reg_mr(domain, start, bytes, access);
  if (made != nullptr) recorded.memories.push_back(made);
  return made;
}

int dereg_mr(ibv_mr* memory) {
  return std::erase(recorded.withdrawn, memory) > 0 ? 0 : recorded.own.dereg_mr(memory);
}

int post_recv(ibv_qp* pair, ibv_recv_wr* first, ibv_recv_wr** bad) {
  return recorded.drops_receives ? 0 : recorded.own.post_recv(pair, first, bad);
}

ibv_cq* create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                  int vector) {
  return recorded.own.create_cq(context, std::min(entries, recorded.most_entries), user, channel,
                                vector);
}

void withdraw(ibv_mr* memory) {
  REQUIRE(recorded.own.dereg_mr(memory) == 0);
  recorded.withdrawn.push_back(memory);
}

void force_to_error(ibv_qp* pair) {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_ERR;
  REQUIRE(recorded.own.modify_qp(pair, &wanted, IBV_QP_STATE) == 0);
}

// A joined link over the recorded device.
struct FaultyPair {
  explicit FaultyPair(int most_entries = 1 << 20) {
    auto loaded = loaded::load_verbs();
    REQUIRE(loaded.ok());
    recorded = {};
    recorded.own = recorded.table = **loaded;
    recorded.most_entries = most_entries;
    recorded.table.create_qp = create_qp;
    recorded.table.reg_mr = reg_mr;
    recorded.table.dereg_mr = dereg_mr;
    recorded.table.post_recv = post_recv;
    recorded.table.create_cq = create_cq;
    use_pair_verbs(&recorded.table);
    receiving = std::make_unique<Side>(Kind::rdma);
    sending = std::make_unique<Side>(Kind::rdma);
    link = open_link(*receiving, *sending, shape);
    INFO(link.status.message());
    REQUIRE(link.status.ok());
  }
  ~FaultyPair() {
    link = {};
    receiving.reset();
    sending.reset();
    use_pair_verbs(nullptr);
  }
  FaultyPair(const FaultyPair&) = delete;
  FaultyPair& operator=(const FaultyPair&) = delete;

  // Sends `bytes` whenever there is credit, until an end fails; the other one is told by the
  // control plane, which is not here, or fails within a second. How the ends then are.
  struct Errors {
    Status sender, receiver;
    double seconds = 0;
  };
  Errors until_failed(std::uint32_t bytes) {
    const std::int64_t start = SystemClock::read();
    std::int64_t now = start, failed = 0;
    SlotWriter out(link.sender->fifo());
    SlotReader in(link.receiver->fifo());
    Errors found;
    const auto goes_on = [&] {
      return failed == 0 ? now - start < 30 * ns_per_s : now - failed < ns_per_s;
    };
    for (; goes_on(); now = SystemClock::read()) {
      if (out.has_credit()) out.commit(bytes, message_flag(1, 1), DeliveryMode::staged);
      if (in.has_message()) in.release();
      found.sender = link.sender->look_at_peer(now, liveness_ns);
      found.receiver = link.receiver->look_at_peer(now, liveness_ns);
      if (failed == 0 && !(found.sender.ok() && found.receiver.ok())) failed = now;
    }
    if (failed != 0) now = failed;
    found.seconds = static_cast<double>(now - start) / ns_per_s;
    fmt::print("after {:.2f} s\n  sender: {}\n  receiver: {}\n", found.seconds,
               found.sender.message(), found.receiver.message());
    return found;
  }

  std::unique_ptr<Side> receiving, sending;
  Link link;
};

bool contains(const Status& status, std::string_view part) {
  return status.message().find(part) != std::string_view::npos;
}

// What is promised, three times.
constexpr double most_seconds = 3 * (static_cast<double>(liveness_ns) / ns_per_s + 1);

}  // namespace

TEST_CASE("a queue pair that is forced to error is an error that names it", "[device]") {
  FaultyPair pair;
  force_to_error(recorded.pairs.back());
  const auto errors = pair.until_failed(30'000);
  CHECK(contains(errors.sender, "IBV_WC_WR_FLUSH_ERR"));
  CHECK(contains(errors.sender, "queue pair"));
  CHECK(errors.seconds < most_seconds);
}

TEST_CASE("a peer's queue pair that is forced to error is an error", "[device]") {
  FaultyPair pair;
  force_to_error(recorded.pairs.front());
  const auto errors = pair.until_failed(30'000);
  CHECK((!errors.sender.ok() || !errors.receiver.ok()));
  CHECK(errors.seconds < most_seconds);
}

TEST_CASE("a key that the receiver withdraws is an error that says so", "[device]") {
  FaultyPair pair;
  const auto slots = std::ranges::find_if(recorded.memories, [](const ibv_mr* memory) {
    return memory->length >= shape.slot_count * shape.slot_bytes;
  });
  REQUIRE(slots != recorded.memories.end());
  withdraw(*slots);
  const auto errors = pair.until_failed(30'000);
  CHECK(contains(errors.sender, "IBV_WC_REM_ACCESS_ERR"));
  CHECK(errors.seconds < most_seconds);
}

TEST_CASE("a receiver that posts no more receives is an error", "[device]") {
  FaultyPair pair;
  recorded.drops_receives = true;
  const auto errors = pair.until_failed(8);
  CHECK((!errors.sender.ok() || !errors.receiver.ok()));
  CHECK(errors.seconds < most_seconds);
}

TEST_CASE("a completion queue that is too short is an error", "[device]") {
  FaultyPair pair(1);
  const auto errors = pair.until_failed(30'000);
  CHECK((!errors.sender.ok() || !errors.receiver.ok()));
  CHECK(errors.seconds < most_seconds);
}

}  // namespace device_faults_test
