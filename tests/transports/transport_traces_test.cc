// Resources and robustness of links of every transport: links that were given up, endpoints that
// were changed, peers that are killed; memory and descriptors afterwards.
#include "lib/transport/slots.h"
#include "tests/support/base/resource_use.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace transport_traces_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

void rest(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Of address space, which leaked mappings use even where they were never touched.
std::size_t mapped_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

std::size_t resident_pages(const std::byte* memory, std::size_t bytes) {
  std::vector<unsigned char> resident(bytes / 4096);
  REQUIRE(mincore(const_cast<std::byte*>(memory), bytes, resident.data()) == 0);
  return static_cast<std::size_t>(
      std::count_if(resident.begin(), resident.end(), [](auto page) { return page & 1; }));
}

}  // namespace

TEST_CASE("a link that was given up cannot be joined", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  Side receiving(kind), other(kind);
  Side& sending = is_one_process(kind) ? receiving : other;
  const FifoShape shape{2, 2, 128};
  auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive}, shape,
                                               sending.identity);
  REQUIRE(listening.ok());
  listening->connection.reset();
  auto connection = sending.transport->connect({.peer = 0, .direction = Direction::send}, shape,
                                               listening->endpoint);
  Status status = connection.status();
  if (connection.ok()) {
    Link link{nullptr, std::move(*connection), {}, {}};
    SlotWriter out(link.sender->fifo());
    const std::int64_t end_ns = SystemClock::read() + 20 * ns_per_s;
    while (status.ok() && SystemClock::read() < end_ns) {
      if (link.sender->ready() && out.has_credit()) out.commit(8, 1, DeliveryMode::staged);
      status = link.sender->progress();
    }
  }
  CHECK(status.code() == Code::RemoteError);
  CHECK(status.culprits() == std::vector<int>{0});
}

TEST_CASE("an endpoint that is not as it was made is refused or harmless", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  Side receiving(kind), other(kind);
  Side& sending = is_one_process(kind) ? receiving : other;
  const FifoShape shape{2, 2, 128};
  const LinkKey key{.peer = 0, .direction = Direction::send};
  auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive}, shape,
                                               sending.identity);
  REQUIRE(listening.ok());
  const Endpoint good = listening->endpoint;
  const auto refused = [&](const Endpoint& endpoint) {
    return sending.transport->connect(key, shape, endpoint).status().code() == Code::RemoteError;
  };
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK(refused(Endpoint(good.begin(), good.begin() + static_cast<long>(length))));
  Endpoint longer = good;
  longer.push_back(0);
  CHECK(refused(longer));
  CHECK(sending.transport->connect(key, {4, 2, 128}, good).status().message().find("2 slots") !=
        std::string_view::npos);
  std::mt19937_64 random(11);
  int refusals = 0;
  for (int i = 0; i < 2000; ++i) {
    Endpoint wrong = good;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes)
      wrong[random() % wrong.size()] = static_cast<std::uint8_t>(random());
    refusals += refused(wrong);
  }
  CHECK(refusals > 500);
}

TEST_CASE("memory and descriptors come back when links go", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  Side receiving(kind), other(kind);
  Side& sending = is_one_process(kind) ? receiving : other;
  const FifoShape shape{4, 128, 4 << 20};
  const auto open_some = [&] {
    std::vector<Link> links;
    for (int i = 0; i < 10; ++i) {
      links.push_back(open_link(receiving, sending, shape));
      REQUIRE(links.back().status.ok());
    }
    // And one that nobody joins.
    auto alone = receiving.transport->listen({.peer = 1, .direction = Direction::receive}, shape,
                                             sending.identity);
    REQUIRE(alone.ok());
  };
  open_some();
  rest(20);
  const int descriptors = open_descriptors();
  const std::size_t bytes = mapped_bytes();
  for (int i = 0; i < 5; ++i) open_some();
  for (int i = 0; i < 200 && open_descriptors() > descriptors; ++i) rest(10);
  CHECK(open_descriptors() == descriptors);
  CHECK(mapped_bytes() < bytes + 4 * fifo_bytes(shape));
}

TEST_CASE("a slot costs memory only once it carries something", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  // What a NIC writes is locked in memory; the fake looks whether it may be written.
  if (kind == Kind::rdma_device || kind == Kind::rdma) return;
  Side receiving(kind), other(kind);
  Side& sending = is_one_process(kind) ? receiving : other;
  const FifoShape shape{16, 128, 256 << 10};
  Link link = open_link(receiving, sending, shape);
  REQUIRE(link.status.ok());
  const FifoView& fifo = link.receiver->fifo();
  CHECK(resident_pages(fifo.slots, shape.slot_count * shape.slot_bytes) == 0);
  SlotWriter out(link.sender->fifo());
  fill(out.place(), 4096, 1);
  out.commit(4096, message_flag(1, 1), DeliveryMode::staged);
  SlotReader in(fifo);
  REQUIRE(pump(link, [&] { return in.has_message(); }));
  CHECK(is_filled(in.place(), 4096, 1));
  CHECK(resident_pages(fifo.slots, shape.slot_count * shape.slot_bytes) <= 16);
}

TEST_CASE("a killed process breaks nothing in the memory it shared", "[transport]") {
  const bool receiver_dies = GENERATE(false, true);
  const auto die = [](End& end) -> std::string {
    SlotWriter out(end.connection->fifo());
    if (!end.join() || !end.messages.await_word()) return "not joined";
    raise(SIGKILL);
    return "alive";
  };
  const auto go_on = [=](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    end.messages.post_word("now");
    GYRE_EXPECT(!end.messages.await().has_value());
    SlotWriter out(end.connection->fifo());
    SlotReader in(end.connection->fifo());
    for (int i = 0; i < 100; ++i) {
      if (receiver_dies && out.has_credit()) {
        fill(out.place(), end.options.shape.slot_bytes, 1);
        out.commit(1, 1, DeliveryMode::staged);
      }
      if (!receiver_dies) GYRE_EXPECT(!in.has_message());
      GYRE_EXPECT(end.connection->progress().ok());
    }
    return "";
  };
  const PairOptions options{.receiver_in_child = receiver_dies};
  const PairResult result = receiver_dies ? run_pair(Kind::shm_processes, options, go_on, die)
                                          : run_pair(Kind::shm_processes, options, die, go_on);
  CHECK((receiver_dies ? result.sender : result.receiver) == "");
  CHECK((receiver_dies ? result.receiver : result.sender) == "its process ended without a word");
}

}  // namespace transport_traces_test
