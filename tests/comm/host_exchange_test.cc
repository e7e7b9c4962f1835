// HostExchange by itself, between two processes' control planes: a message is received though the
// sender's own endpoint never comes.
#include "lib/sendrecv/host_exchange.h"

#include "lib/links/transport_registry.h"
#include "lib/transport/region.h"
#include "tests/support/control/meeting.h"

#include <array>
#include <atomic>
#include <cstring>
#include <string>

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
  HostExchange exchange{links, 2};
};

}  // namespace

TEST_CASE("a message is received before the sender's own endpoint has come") {
  Settings settings = loopback_settings();
  settings.transport = "shm";  // over tcp a sender waits until both directions stand
  Meeting meeting(2, 2, settings);
  meeting.require_joined();
  DeafMember deaf(*meeting.members[0]);
  ExchangingRank receiver(0, deaf, *meeting.planes[0], settings);
  ExchangingRank sender(1, *meeting.members[1], *meeting.planes[1], settings);

  const std::array<std::byte, 8> sent{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 8> received{};
  const Transfer send{.sends = true, .input = sent.data(), .bytes = sent.size(), .peer = 0};
  const Transfer receive{.output = received.data(), .bytes = received.size(), .peer = 1};
  Batch sends, receives;
  sends.begin({&send, 1});
  receives.begin({&receive, 1});
  REQUIRE(receiver.exchange.begin(receives).ok());
  REQUIRE(sender.exchange.begin(sends).ok());
  bool moved = false;
  CHECK(soon(
      [&] {
        REQUIRE(receiver.exchange.advance(moved).ok());
        REQUIRE(sender.exchange.advance(moved).ok());
        return receives.is_done();
      },
      5));
  CHECK(received == sent);
  for (const auto& member : meeting.members) member->leave();
}

}  // namespace host_exchange_test
