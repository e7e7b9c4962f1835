// Farewells: a rank's leave is over when a process has heard it that stays, or nobody is there.
// Only then may its process end without being missed.
#include "tests/support/control/scripted_job.h"

#include <chrono>
#include <future>
#include <thread>

namespace farewell_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::test;

namespace {

class Leaving {
 public:
  explicit Leaving(Membership& member)
      : over_(std::async(std::launch::async, [&member] { member.leave(); })) {}
  bool is_over() const { return over_.wait_for(std::chrono::seconds(0)) == ready; }
  // Before it would give up.
  bool ends() const { return over_.wait_for(std::chrono::milliseconds(800)) == ready; }

 private:
  static constexpr auto ready = std::future_status::ready;
  std::future<void> over_;
};

// Whether the frame, of the real process's link, says that its rank has left.
bool tells_leave(const ScriptedJob& job, const trust::Frame& frame) {
  std::span<const std::uint8_t> body;
  REQUIRE(decode_on_link(frame.body, &body));
  if (static_cast<Kind>(frame.type) == Kind::leave) return decode_leave(body) == rank_here;
  if (static_cast<Kind>(frame.type) != Kind::departed) return false;
  const auto ranks = job.departures.decode(body);
  return ranks && std::ranges::count(*ranks, std::uint32_t{rank_here}) == 1;
}

}  // namespace

TEST_CASE("a leave is over when a neighbour has heard it") {
  ScriptedJob job;
  job.require_joined();
  const Leaving leaving(*job.member);
  REQUIRE(tells_leave(job, job.root->next(Kind::leave)));
  CHECK_FALSE(leaving.is_over());
  job.root->say_on(job.root_link, Kind::farewell_heard, {});
  CHECK(leaving.ends());
}

TEST_CASE("a leave is over when its last messages have been taken") {
  ScriptedJob job;
  job.require_joined();
  REQUIRE(job.member->send(guest_rank, 7, {1, 2, 3}).ok());
  const Leaving leaving(*job.member);
  job.root->next(Kind::rank_message);
  REQUIRE(tells_leave(job, job.root->next(Kind::leave)));
  job.root->say_on(job.root_link, Kind::farewell_heard, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(leaving.is_over());
  job.root->say_on(job.root_link, Kind::ack, encode(AckMessage{1, 2, 1}));
  CHECK(leaving.ends());
}

TEST_CASE("who leaves when its neighbours have ended tells somebody else") {
  ScriptedJob job;
  job.require_joined();
  const FileDescriptor listener = listen_as(job.guest.listener_name);
  job.end_root();
  const Leaving leaving(*job.member);
  ScriptedPeer guest(accept_soon(listener), job.id, job.guest);
  const std::uint64_t link = guest.take_link();
  guest.next(Kind::hello);
  std::optional<trust::Frame> told;
  do {
    told = guest.next();
    REQUIRE(told);
  } while (!tells_leave(job, *told));
  guest.say_on(link, Kind::welcome, encode(HelloMessage{1, job.guest.process}));
  CHECK_FALSE(leaving.is_over());
  guest.say_on(link, Kind::farewell_heard, {});
  CHECK(leaving.ends());
}

TEST_CASE("a leave is over when nobody is there to hear it") {
  ScriptedJob job;
  job.require_joined();
  job.end_root();
  const Leaving leaving(*job.member);
  CHECK(leaving.ends());
}

TEST_CASE("a process that stays says that it has heard a farewell") {
  ScriptedJob job;
  job.require_joined();
  job.root->say_on(job.root_link, Kind::leave, encode_leave(root_rank));
  job.root->next(Kind::farewell_heard);
  CHECK_FALSE(job.member->failed());
  job.root.reset();
}

}  // namespace farewell_test
