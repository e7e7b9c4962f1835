// Messages for a process whose way has ended wait until it has taken a new link, and keep their
// order on it.
#include "tests/support/control/scripted_job.h"

namespace overtaking_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::test;

namespace {

// The numbers of the next `count` messages that come over the link.
std::vector<std::uint64_t> next_numbers(ScriptedPeer& peer, std::size_t count) {
  std::vector<std::uint64_t> numbers;
  while (numbers.size() < count) {
    const std::optional<trust::Frame> frame = peer.next();
    REQUIRE(frame);
    if (static_cast<Kind>(frame->type) != Kind::rank_message) continue;
    std::span<const std::uint8_t> body, text;
    REQUIRE(decode_on_link(frame->body, &body));
    numbers.push_back(decode_rank_message(body, &text)->number);
  }
  return numbers;
}

}  // namespace

TEST_CASE("no message overtakes others on a link that the other end has not taken yet") {
  ScriptedJob job;
  job.require_joined();
  const FileDescriptor listener = listen_as(job.guest.listener_name);
  job.end_root();
  for (std::uint8_t i = 0; i < 3; ++i) REQUIRE(job.member->send(guest_rank, 7, {i}).ok());
  ScriptedPeer guest(accept_soon(listener), job.id, job.guest);
  const std::uint64_t link = guest.take_link();
  guest.next(Kind::hello);
  REQUIRE(job.member->send(guest_rank, 7, {3}).ok());
  // The control thread has seen to it before this returns.
  REQUIRE(job.plane->create_unique_id(Audience::this_host, loopback_settings()).ok());
  guest.say_on(link, Kind::welcome, encode(HelloMessage{1, job.guest.process}));
  CHECK(next_numbers(guest, 4) == std::vector<std::uint64_t>{1, 2, 3, 4});
  CHECK_FALSE(job.member->failed());
}

}  // namespace overtaking_test
