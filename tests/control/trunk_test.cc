// Trunks, the connections that several communicators of the same processes share: their number,
// that each communicator lives and ends alone on them, and how one refuses an impostor.
#include "tests/support/control/scripted_peer.h"

#include <filesystem>
#include <poll.h>

namespace trunk_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::test;
using State = Membership::State;

namespace {

std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

MessageBytes text(std::string_view words) { return MessageBytes(words.begin(), words.end()); }

// Two ranks in two processes.
struct Pair {
  Pair(ControlPlane& root, ControlPlane& other, bool over_tcp = false) {
    auto id = make_id(root);
    REQUIRE(id.ok());
    if (over_tcp) id->root_host[0] ^= 1;
    first = join(root, *id, 2, 0);
    second = join(other, *id, 2, 1);
  }
  void require_joined() const {
    REQUIRE(settles(*first));
    REQUIRE(settles(*second));
    INFO(second->failure().full_text());
    REQUIRE(second->state() == State::joined);
  }
  void require_talk(std::uint64_t key) const {
    REQUIRE(first->send(1, key, text("there")).ok());
    REQUIRE(second->send(0, key, text("back")).ok());
    REQUIRE(next_message(*second, 0, key) == text("there"));
    REQUIRE(next_message(*first, 1, key) == text("back"));
  }
  void leave() const {
    first->leave();
    second->leave();
  }
  std::shared_ptr<Membership> first, second;
};

// The other rank comes, and is let in.
void require_joins(ControlPlane& plane, const trust::UniqueId& id, Membership& waits) {
  const auto comes = join(plane, id, 2, 1);
  REQUIRE(settles(*comes));
  CHECK(comes->state() == State::joined);
  comes->leave();
  waits.leave();
}

}  // namespace

TEST_CASE("communicators of the same two processes share a connection, whoever made their ids") {
  const auto a = start_plane(), b = start_plane();
  const bool tcp = GENERATE(false, true);
  const auto idle = descriptors();
  {
    const Pair first(*a, *b, tcp);
    first.require_joined();
    const auto with_one = descriptors();
    std::vector<Pair> others;
    for (int i = 0; i < 30; ++i) {
      if (i % 2 == 0)
        others.emplace_back(*b, *a);
      else
        others.emplace_back(*a, *b);
      others.back().require_joined();
      CHECK(descriptors() == with_one);
    }
    for (const Pair& pair : others) pair.require_talk(3);
    first.leave();
    for (const Pair& pair : others) pair.require_talk(4);
    for (const Pair& pair : others) pair.leave();
  }
  CHECK(soon([&] { return descriptors() == idle; }));
}

TEST_CASE("communicators that begin at once share at most a connection for each who dials") {
  const auto a = start_plane(), b = start_plane();
  const auto idle = descriptors();
  std::vector<Pair> pairs;
  for (int i = 0; i < 16; ++i) {
    if (i % 2 == 0)
      pairs.emplace_back(*a, *b);
    else
      pairs.emplace_back(*b, *a);
  }
  for (const Pair& pair : pairs) pair.require_joined();
  // Two trunks with two ends and a process descriptor at each, all in this process.
  CHECK(soon([&] { return descriptors() <= idle + 2 * 4; }));
  for (const Pair& pair : pairs) pair.require_talk(3);
  for (const Pair& pair : pairs) pair.leave();
  CHECK(soon([&] { return descriptors() == idle; }));
}

TEST_CASE("a communicator that fails takes no other one on its connection along") {
  const auto a = start_plane(), b = start_plane();
  const Pair doomed(*a, *b), lucky(*b, *a);
  doomed.require_joined();
  lucky.require_joined();
  doomed.first->abort(Status(Code::Aborted, "no more"));
  REQUIRE(fails(*doomed.second));
  CHECK(doomed.second->failure().culprits() == std::vector<int>{0});
  doomed.leave();
  lucky.require_talk(3);
  CHECK_FALSE(lucky.first->failed());
  lucky.leave();
}

TEST_CASE("a process's end is told to all communicators on its connections") {
  const auto a = start_plane();
  auto b = start_plane();
  const Pair one(*a, *b), two(*b, *a);
  one.require_joined();
  two.require_joined();
  b.reset();
  REQUIRE(fails(*one.first));
  REQUIRE(fails(*two.second));
  CHECK(one.first->failure().culprits() == std::vector<int>{1});
  CHECK(two.second->failure().culprits() == std::vector<int>{0});
}

TEST_CASE("whoever claims to be another process gets no link, and holds nobody up") {
  const auto victim = start_plane(), honest = start_plane();
  auto id = make_id(*victim);
  REQUIRE(id.ok());
  const auto waits = join(*victim, *id, 2, 0);
  // No connection leads to the honest one, and the impostor's seems to.
  ScriptedPeer impostor(*victim, *id, honest->identity());
  const std::string_view answer = GENERATE("the victim's own proof", "no", "nothing");
  const Pair wanted(*honest, *victim);
  const auto asked = impostor.next();
  REQUIRE(asked);
  REQUIRE(static_cast<Kind>(asked->type) == Kind::open);
  const OpenMessage open = *decode_open(asked->body);
  if (answer == "the victim's own proof")
    impostor.say(Kind::opened, encode(OpenedMessage{open.link, open.proof}));
  if (answer == "no") impostor.say(Kind::refused, encode_on_link(open.link));
  wanted.require_joined();
  wanted.require_talk(3);
  wanted.leave();
  require_joins(*honest, *id, *waits);
}

TEST_CASE("a link is opened to those who prove its key on this very connection") {
  const auto plane = start_plane(), other = start_plane();
  auto known = make_id(*plane), secret = make_id(*plane);
  REQUIRE(known.ok());
  REQUIRE(secret.ok());
  const auto one = join(*plane, *known, 2, 0), two = join(*plane, *secret, 2, 0);
  ScriptedPeer impostor(*plane, *known, other->identity()),
      elsewhere(*plane, *known, plane->identity());
  const auto key = *trust::derive_control_key(*secret);
  const auto binding = GENERATE(0, 1, 2);
  OpenMessage open{2, key->identity, {}};
  if (binding == 1)  // as if passed on from another connection
    open.proof = *trust::prove(*key, elsewhere.binding(), trust::Prover::opener, open.link);
  if (binding == 2)
    open.proof = *trust::prove(*key, impostor.binding(), trust::Prover::opener, open.link);
  impostor.say(Kind::open, encode(open));
  const auto answer = impostor.next();
  REQUIRE(answer);
  CHECK(static_cast<Kind>(answer->type) == (binding == 2 ? Kind::opened : Kind::refused));
  require_joins(*other, *known, *one);
  require_joins(*other, *secret, *two);
}

TEST_CASE("whoever breaks the trunk's protocol loses it") {
  const auto plane = start_plane(), other = start_plane();
  auto id = make_id(*plane);
  REQUIRE(id.ok());
  const auto waits = join(*plane, *id, 2, 0);
  const auto key = *trust::derive_control_key(*id);
  const int fault = GENERATE(0, 1, 2, 3, 4);
  CAPTURE(fault);
  ScriptedPeer impostor(*plane, *id, other->identity());
  if (fault == 0) impostor.say(Kind::greeting, encode_greeting(other->identity()));
  if (fault == 1) impostor.say(Kind::open, encode(OpenMessage{3, key->identity, {}}));
  if (fault == 2) impostor.say(Kind::opened, encode(OpenedMessage{1, {}}));
  if (fault == 3) impostor.say(Kind::closed, {1, 2, 3});
  if (fault == 4) impostor.say(Kind::join, {1, 2, 3});
  CHECK_FALSE(impostor.next());
  require_joins(*other, *id, *waits);
}

}  // namespace trunk_test
