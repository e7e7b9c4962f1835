// Control connections with a man in the middle, who changes, repeats, swaps, cuts and loses
// records: each ends the communicator on both sides with an error that names the other rank, and
// nothing that he made is taken for a message.
#include "tests/support/control/meeting.h"
#include "tests/support/trust/record_relay.h"

#include <string>

namespace tampering_test {

using namespace gyre;
using namespace gyre::test;
using tests::RecordRelay;
using Attack = RecordRelay::Attack;
using Way = RecordRelay::Way;
using State = Membership::State;

namespace {

constexpr std::uint64_t key = 7;

// Two ranks, whose processes have one connection: through the relay.
struct RelayedJob {
  RelayedJob() : root(start_plane()), other(start_plane()) {
    trust::UniqueId id = *make_id(*root);
    ranks[0] = join(*root, id, 2, 0);
    relay.lead_to(id.root_address);
    // As on another host.
    id.root_host.fill(9);
    id.root_listener.clear();
    id.root_address = relay.address();
    ranks[1] = join(*other, id, 2, 1);
    REQUIRE(passes(
        [&] { return ranks[0]->state() == State::joined && ranks[1]->state() == State::joined; }));
  }
  template <typename Condition>
  bool passes(Condition&& holds, double seconds = 10) {
    return soon(
        [&] {
          relay.step();
          return holds();
        },
        seconds);
  }

  RecordRelay relay;
  std::unique_ptr<ControlPlane> root, other;
  std::shared_ptr<Membership> ranks[2];
};

}  // namespace

TEST_CASE("a changed, repeated, swapped, cut or lost record ends a control connection") {
  struct Case {
    Attack attack;
    const char* text;
  };
  constexpr const char* tampered = "was changed, repeated, reordered or lost";
  const auto [attack, text] = GENERATE(
      Case{Attack::flip, tampered}, Case{Attack::flip_tag, tampered},
      Case{Attack::repeat, tampered}, Case{Attack::swap, tampered}, Case{Attack::lose, tampered},
      Case{Attack::cut, "closed"}, Case{Attack::end, "closed"});
  const auto way = GENERATE(Way::there, Way::back);
  CAPTURE(static_cast<int>(attack), static_cast<int>(way));
  RelayedJob job;
  const int from = way == Way::there ? 1 : 0, to = 1 - from;
  REQUIRE(job.ranks[from]->send(to, key, {1}).ok());
  std::optional<MessageBytes> first;
  REQUIRE(job.passes([&] { return (first = job.ranks[to]->receive(from, key)).has_value(); }));
  job.relay.arm(way, attack);
  for (std::uint8_t word = 2; word < 5; ++word) {
    // Who knows of the end already says nothing more.
    const bool sent = job.ranks[from]->send(to, key, {word}).ok();
    REQUIRE((sent || job.ranks[from]->failed()));
    // In a record of its own.
    job.passes([] { return false; }, 0.02);
  }
  REQUIRE(job.passes([&] { return job.ranks[0]->failed() && job.ranks[1]->failed(); }));
  CHECK(job.relay.has_struck());
  // What came whole and in order before the attack is there; nothing else is.
  std::uint8_t next = 2;
  while (const auto message = job.ranks[to]->receive(from, key)) CHECK((*message)[0] == next++);
  CHECK(next <= 3);
  const Status failure = job.ranks[to]->failure();
  CAPTURE(failure.full_text());
  CHECK(failure.code() == Code::RemoteError);
  CHECK(failure.culprits() == std::vector<int>{from});
  CHECK(std::string(failure.full_text()).find(text) != std::string::npos);
  CHECK(job.ranks[from]->failure().code() == Code::RemoteError);
}

}  // namespace tampering_test
