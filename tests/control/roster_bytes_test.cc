// How much the root of a large job sends: the roster to its children in the tree, and to no one
// else. Bytes are counted where each control thread gives them to the kernel.
#include "tests/support/control/meeting.h"

#include <map>
#include <mutex>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace roster_bytes_test {

using namespace gyre;
using namespace gyre::test;

namespace {

std::mutex counting;
std::map<long, std::size_t> sent_by_thread;

}  // namespace

// In libc's place, for this program.
extern "C" ssize_t send(int descriptor, const void* data, size_t bytes, int flags) {
  const long sent = ::syscall(SYS_sendto, descriptor, data, bytes, flags, nullptr, 0);
  if (sent > 0) {
    const std::lock_guard lock(counting);
    sent_by_thread[::syscall(SYS_gettid)] += static_cast<std::size_t>(sent);
  }
  return sent;
}

TEST_CASE("no process sends the roster more than eight times") {
  constexpr int size = 48;
  constexpr std::size_t note_bytes = 16 << 10;
  std::vector<std::unique_ptr<control::ControlPlane>> planes;
  for (int i = 0; i < size; ++i) planes.push_back(start_plane());
  const auto id = make_id(*planes[0]);
  REQUIRE(id.ok());
  std::vector<std::shared_ptr<Membership>> members;
  for (int rank = 0; rank < size; ++rank) {
    auto member = planes[static_cast<std::size_t>(rank)]->join(
        *id, size, rank, MessageBytes(note_bytes, static_cast<std::uint8_t>(rank)),
        loopback_settings());
    REQUIRE(member.ok());
    members.push_back(std::move(*member));
  }
  for (const auto& member : members) {
    REQUIRE(settles(*member));
    INFO(member->failure().full_text());
    REQUIRE(member->state() == Membership::State::joined);
    CHECK(member->roster().notes[size - 1] == MessageBytes(note_bytes, size - 1));
  }
  std::size_t most = 0;
  {
    const std::lock_guard lock(counting);
    for (const auto& [thread, bytes] : sent_by_thread) most = std::max(most, bytes);
  }
  constexpr std::size_t roster_bytes = size * (note_bytes + 256);
  CHECK(most >= 8 * size * note_bytes);
  CHECK(most <= 9 * roster_bytes);
  for (const auto& member : members) member->leave();
}

}  // namespace roster_bytes_test
