// HostExchange by itself, between two processes' control planes: a message is received though the
// sender's own endpoint never comes; a long one is copied from where it lies, if the peer maps it.
#include "lib/sendrecv/host_exchange.h"

#include "lib/links/transport_registry.h"
#include "lib/transport/region.h"
#include "tests/support/control/meeting.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace host_exchange_test {

using namespace gyre;
using namespace gyre::comm;
using namespace gyre::test;
using control::Membership;
using control::MessageBytes;

namespace {

// A member to whom nothing comes from the others: whoever would have forwarded it has left.
class DeafMember final : public Membership {
 public:
  explicit DeafMember(Membership& member) : member_(member) {}
  State state() const override { return member_.state(); }
  Status failure() const override { return member_.failure(); }
  std::atomic<std::uint32_t>& changed() override { return member_.changed(); }
  const control::Roster& roster() const override { return member_.roster(); }
  const trust::ProcessIdentity& self() const override { return member_.self(); }
  Status send(int to, std::uint64_t key, MessageBytes text) override {
    return member_.send(to, key, std::move(text));
  }
  std::optional<MessageBytes> receive(int, std::uint64_t) override { return std::nullopt; }
  void listen(std::uint64_t key, Hear hear) override { member_.listen(key, std::move(hear)); }
  bool has_left(int rank) const override { return member_.has_left(rank); }
  void abort(Status why) override { member_.abort(std::move(why)); }
  void leave() override { member_.leave(); }

 private:
  Membership& member_;
};

Settings shm_settings() {
  Settings settings = loopback_settings();
  settings.transport = "shm";
  return settings;
}

// A rank's links and its exchange.
struct ExchangingRank {
  ExchangingRank(int rank, Membership& member, ControlPlane& plane, const Settings& settings)
      : transports(std::move(make_transports(settings, {.self = member.self(),
                                                        .tickets = plane.tickets(),
                                                        .listen_on_this_host =
                                                            [&plane, settings] {
                                                              return plane.listen_on_this_host(
                                                                  settings);
                                                            }}))
                       .value()),
        links(rank, member, transports, regions.probe()) {}

  transport::RegionTable regions;
  TransportList transports;
  Links links;
  HostExchange exchange{links, regions, 2};
};

// Two ranks of this host with a link for sends and receives; a deaf receiver's never opens.
struct Exchanging {
  explicit Exchanging(bool is_deaf = false)
      : receiver(0, is_deaf ? static_cast<Membership&>(deaf) : *meeting.members[0],
                 *meeting.planes[0], shm_settings()) {
    meeting.require_joined();
  }
  ~Exchanging() {
    for (const auto& member : meeting.members) member->leave();
  }
  void begin(const Transfer& send, const Transfer& receive) {
    sends.begin({&send, 1});
    receives.begin({&receive, 1});
    REQUIRE(receiver.exchange.begin(receives).ok());
    REQUIRE(sender.exchange.begin(sends).ok());
  }
  // Both tell each other how they reach the other one's memory when the link opens.
  void open() {
    const std::byte sent{7};
    std::byte received{};
    const Transfer send{.sends = true, .input = &sent, .bytes = 1, .peer = 0};
    const Transfer receive{.output = &received, .bytes = 1, .peer = 1};
    begin(send, receive);
    REQUIRE(go_on([&] {
      return receives.is_done() && sends.is_done() && sender.links.all_open() &&
             receiver.links.all_open();
    }));
  }
  bool go_on(const std::function<bool()>& is_over) {
    bool moved = false;
    return soon(
        [&] {
          REQUIRE(receiver.exchange.advance(moved).ok());
          REQUIRE(sender.exchange.advance(moved).ok());
          return is_over();
        },
        5);
  }
  exec::SendPort& send_port() { return *sender.links.pair(0).send; }
  std::uint64_t capacity() {
    const transport::FifoShape& shape = send_port().slots.view().shape;
    return shape.slot_count * shape.slot_bytes;
  }

  Meeting meeting{2, 2, shm_settings()};
  DeafMember deaf{*meeting.members[0]};
  ExchangingRank receiver;
  ExchangingRank sender{1, *meeting.members[1], *meeting.planes[1], shm_settings()};
  Batch sends, receives;
};

// The sender has lent a message, and the receiver has not looked yet.
struct LendingRanks : Exchanging {
  explicit LendingRanks(std::uint64_t bytes_ = 3 << 20) : bytes(bytes_) {
    for (std::uint64_t i = 0; i < bytes; i += 4096)
      const_cast<std::byte*>(send.input)[i] = static_cast<std::byte>(i / 4096);
    open();
    begin(send, receive);
    bool moved = false;
    REQUIRE(sender.exchange.advance(moved).ok());
  }
  void expect_refused(const char* words) {
    bool moved = false;
    const Status told = receiver.exchange.advance(moved);
    CHECK(told.code() == Code::RemoteError);
    CHECK(told.message().find(words) != std::string_view::npos);
    CHECK_FALSE(receives.is_done());
  }

  const std::uint64_t bytes;
  std::vector<std::byte> received = std::vector<std::byte>(bytes);
  const Transfer send{
      .sends = true,
      .input = static_cast<const std::byte*>(sender.regions.allocate(bytes).value()),
      .bytes = bytes,
      .peer = 0};
  const Transfer receive{.output = received.data(), .bytes = bytes, .peer = 1};
};

}  // namespace

// Not over tcp, where a sender waits until both directions stand.
TEST_CASE("a message is received before the sender's own endpoint has come") {
  Exchanging ranks(true);
  const std::array<std::byte, 8> sent{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 8> received{};
  const Transfer send{.sends = true, .input = sent.data(), .bytes = sent.size(), .peer = 0};
  const Transfer receive{.output = received.data(), .bytes = received.size(), .peer = 1};
  ranks.begin(send, receive);
  CHECK(ranks.go_on([&] { return ranks.receives.is_done(); }));
  CHECK(received == sent);
}

// The sender's link is open, and uses all parts of its slots; the receiver's is not.
TEST_CASE("messages are found in their slots before the sender's own endpoint has come") {
  Exchanging ranks(true);
  for (Links* links : {&ranks.receiver.links, &ranks.sender.links})
    links->use_shape({.spreads = true});
  constexpr std::size_t bytes = 2 * transport::min_spread_bytes;
  for (int number = 1; number <= 20; ++number) {
    CAPTURE(number);
    const std::vector<std::byte> sent(bytes, static_cast<std::byte>(number));
    std::vector<std::byte> received(bytes);
    const Transfer send{.sends = true, .input = sent.data(), .bytes = bytes, .peer = 0};
    const Transfer receive{.output = received.data(), .bytes = bytes, .peer = 1};
    ranks.begin(send, receive);
    REQUIRE(ranks.go_on([&] { return ranks.receives.is_done() && ranks.sends.is_done(); }));
    CHECK(received == sent);
  }
}

TEST_CASE("a message that does not fit the link is copied from memory that the peer maps") {
  Exchanging ranks;
  ranks.open();
  const auto [more, is_shared, slots] = GENERATE(table<std::uint64_t, bool, std::uint64_t>(
      {{0, true, 0}, {1, true, 1}, {1'000'003, true, 1}, {1, false, 0}}));
  const std::uint64_t bytes = ranks.capacity() + more;
  CAPTURE(more, is_shared);
  std::vector<std::byte> own(bytes), received(bytes);
  std::byte* const input =
      is_shared ? static_cast<std::byte*>(ranks.sender.regions.allocate(bytes).value())
                : own.data();
  for (std::uint64_t i = 0; i < bytes; ++i) input[i] = static_cast<std::byte>(i * 7 + i / 4096);
  const Transfer send{.sends = true, .input = input, .bytes = bytes, .peer = 0};
  const Transfer receive{.output = received.data(), .bytes = bytes, .peer = 1};
  const std::uint64_t before = ranks.send_port().slots.tail();
  ranks.begin(send, receive);
  bool moved = false;
  CHECK(soon(
      [&] {
        REQUIRE(ranks.sender.exchange.advance(moved).ok());
        const bool is_early = ranks.sends.is_done() && !ranks.receives.is_done();
        CHECK_FALSE((is_early && slots == 1));
        REQUIRE(ranks.receiver.exchange.advance(moved).ok());
        return ranks.sends.is_done() && ranks.receives.is_done();
      },
      5));
  CHECK(std::equal(received.begin(), received.end(), input));
  if (slots != 0) CHECK(ranks.send_port().slots.tail() - before == slots);
  if (slots == 0) CHECK(ranks.send_port().slots.tail() - before > 1);
  if (is_shared) CHECK(ranks.sender.regions.release(input).ok());
}

TEST_CASE("a long lent message is copied in turns, and may be given up between them") {
  LendingRanks ranks(9 << 20);
  bool moved = false;
  REQUIRE(ranks.receiver.exchange.advance(moved).ok());
  CHECK((moved && !ranks.receives.is_done()));
  const bool gives_up = GENERATE(false, true);
  if (gives_up) {
    ranks.sender.exchange.end(ranks.sends, Status(Code::RemoteError, "it does not wait"));
    return ranks.expect_refused("gave a message up");
  }
  for (int turn = 1; turn < 3; ++turn) REQUIRE(ranks.receiver.exchange.advance(moved).ok());
  CHECK(ranks.receives.is_done());
  CHECK(std::equal(ranks.received.begin(), ranks.received.end(), ranks.send.input));
}

TEST_CASE("a lent message that its sender gives up is an error of the receiver") {
  LendingRanks ranks;
  CHECK_FALSE(ranks.sends.is_done());
  const Blocked blocked = ranks.sender.exchange.blocked(ranks.sends);
  CHECK((blocked.what == BlockedOn::drain && blocked.peer == 0));
  ranks.sender.exchange.end(ranks.sends, Status(Code::RemoteError, "it does not wait"));
  ranks.expect_refused("gave a message up");
}

// What it says in its place may be anything.
TEST_CASE("a loan that is no memory of the sender's is refused") {
  LendingRanks ranks;
  transport::Loan& loan = ranks.send_port().slots.view().control->sender_grant.loan;
  const int lie = GENERATE(0, 1, 2, 3, 4, 5);
  CAPTURE(lie);
  if (lie < 3) loan.region = static_cast<std::uint64_t>(lie);
  if (lie == 3) ++loan.region;
  if (lie == 4) loan.offset += 1 << 20;
  if (lie == 5) --loan.bytes;
  ranks.expect_refused("malformed");
}

}  // namespace host_exchange_test
