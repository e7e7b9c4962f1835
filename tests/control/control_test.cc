// The control plane among processes without faults: joining, messages, aborts, leaving. Several
// control planes in this process stand for processes; control_fault_test has real ones and kills
// them.
#include "tests/support/control/scripted_job.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <new>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace control_test {

using namespace gyre;
using namespace gyre::test;
using State = Membership::State;

namespace {

std::ptrdiff_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

MessageBytes text(std::string_view words) { return MessageBytes(words.begin(), words.end()); }

void require_failed_with(const Membership& member, Code code, const std::vector<int>& culprits,
                         std::string_view part) {
  REQUIRE(fails(member));
  const Status failure = member.failure();
  INFO(failure.full_text());
  CHECK(failure.code() == code);
  CHECK(failure.culprits() == culprits);
  CHECK(failure.message().find(part) != std::string_view::npos);
}

}  // namespace

TEST_CASE("256 ranks of one process meet without a thread or a socket of their own") {
  const auto plane = start_plane();
  const auto id = make_id(*plane);
  REQUIRE(id.ok());
  const auto threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
  std::vector<std::shared_ptr<Membership>> members;
  for (int rank = 0; rank < 256; ++rank) members.push_back(join(*plane, *id, 256, rank));
  for (const auto& member : members) REQUIRE(settles(*member));
  CHECK(members[200]->state() == State::joined);
  CHECK(entries("/proc/self/task") == threads);
  // Less where the listener for other hosts has closed: all are here.
  CHECK(entries("/proc/self/fd") <= descriptors);
  CHECK(members[3]->roster().processes.size() == 1);
  CHECK(members[3]->roster().notes[77] == MessageBytes{77});

  REQUIRE(members[3]->send(250, 9, text("hello")).ok());
  CHECK(members[250]->receive(3, 9) == text("hello"));
  CHECK_FALSE(members[250]->receive(3, 9).has_value());
  for (const auto& member : members) member->leave();
}

TEST_CASE("every rank of several processes gets the same roster") {
  const auto [planes, size] = GENERATE(table<int, int>({{2, 2}, {3, 8}, {9, 9}, {24, 48}}));
  Meeting meeting(planes, size);
  meeting.require_joined();
  for (const auto& member : meeting.members) {
    const auto& roster = member->roster();
    REQUIRE(roster.processes.size() == static_cast<std::size_t>(planes));
    REQUIRE(roster.process_of_rank.size() == static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      const auto place = static_cast<std::size_t>(rank);
      const auto& home = meeting.planes[static_cast<std::size_t>(rank % planes)]->identity();
      CHECK(roster.processes[roster.process_of_rank[place]].process == home.process);
      CHECK(roster.notes[place] == MessageBytes{static_cast<std::uint8_t>(rank)});
    }
  }
  for (const auto& member : meeting.members) member->leave();
}

TEST_CASE("ranks meet over TCP where the host differs") {
  const auto root = start_plane(), other = start_plane();
  auto id = make_id(*root);
  REQUIRE(id.ok());
  id->root_host[0] ^= 1;
  const auto a = join(*root, *id, 2, 0), b = join(*other, *id, 2, 1);
  REQUIRE(settles(*a));
  REQUIRE(settles(*b));
  INFO(b->failure().full_text());
  CHECK(b->state() == State::joined);
}

TEST_CASE("no process of a large job holds more than nine sessions") {
  const auto idle = entries("/proc/self/fd");
  {
    const auto plane = start_plane();
    const auto per_plane = entries("/proc/self/fd") - idle;
    Meeting meeting(24, 24);
    meeting.require_joined();
    // A tree of 24 processes has 23 links, each with two ends and a process descriptor at each end.
    // The sessions to the root that the tree replaced close behind it.
    CHECK(soon([&] { return entries("/proc/self/fd") <= idle + per_plane * 25 + 23 * 4; }));
    for (const auto& member : meeting.members) member->leave();
    CHECK(soon([&] { return entries("/proc/self/fd") == idle + per_plane * 25; }));
  }
  CHECK(entries("/proc/self/fd") == idle);
}

TEST_CASE("messages with one key arrive in order, over the tree and within a process") {
  Meeting meeting(20, 40);
  meeting.require_joined();
  const auto [from, to] = GENERATE(table<int, int>({{0, 39}, {19, 18}, {15, 35}, {7, 7}, {9, 0}}));
  auto& sender = *meeting.members[static_cast<std::size_t>(from)];
  auto& receiver = *meeting.members[static_cast<std::size_t>(to)];
  for (std::uint8_t i = 0; i < 100; ++i) REQUIRE(sender.send(to, 5, MessageBytes{i}).ok());
  REQUIRE(sender.send(to, 6, MessageBytes(64 << 10, 3)).ok());
  for (std::uint8_t i = 0; i < 100; ++i)
    REQUIRE(next_message(receiver, from, 5) == MessageBytes{i});
  CHECK(next_message(receiver, from, 6) == MessageBytes(64 << 10, 3));
  CHECK_FALSE(receiver.receive(from, 7).has_value());
}

TEST_CASE("a message that is too long, or to nobody, is refused") {
  Meeting meeting(1, 2);
  meeting.require_joined();
  CHECK(meeting.members[0]->send(1, 0, MessageBytes((64 << 10) + 1)).code() ==
        Code::InvalidArgument);
  CHECK(meeting.members[0]->send(2, 0, {}).code() == Code::InvalidArgument);
  CHECK(meeting.members[0]->send(-1, 0, {}).code() == Code::InvalidArgument);
}

TEST_CASE("an abort fails every rank and names the one who aborted") {
  Meeting meeting(11, 22);
  meeting.require_joined();
  const auto seen = meeting.members[0]->changed().load();
  meeting.members[20]->abort(Status(Code::Aborted, "enough"));
  CHECK(meeting.members[20]->failed());
  CHECK(meeting.members[20]->failure().code() == Code::Aborted);
  for (int rank : {0, 1, 9, 10, 21})
    require_failed_with(*meeting.members[static_cast<std::size_t>(rank)], Code::RemoteError, {20},
                        "rank 20");
  CHECK(meeting.members[0]->changed().load() != seen);
  CHECK(meeting.members[0]->send(1, 0, {}).code() == Code::RemoteError);
}

TEST_CASE("an abort blames the culprits that it names, and the first cause wins") {
  Meeting meeting(3, 3);
  meeting.require_joined();
  meeting.members[1]->abort(Status(Code::Timeout, "rank 2 does not come").blame({2}));
  meeting.members[0]->abort(Status(Code::Aborted, "later"));
  for (const auto& member : {meeting.members[1], meeting.members[2]})
    require_failed_with(*member, Code::Timeout, {2}, "rank 2 does not come");
}

TEST_CASE("ranks that disagree on the size all learn of it") {
  const auto root = start_plane(), other = start_plane();
  const auto id = make_id(*root);
  const auto a = join(*root, *id, 3, 0), b = join(*other, *id, 4, 1);
  for (const auto& member : {a, b}) {
    require_failed_with(*member, Code::Mismatch, {0, 1}, "of 4 ranks");
    CHECK(member->failure().message().find("one of 3") != std::string_view::npos);
  }
}

TEST_CASE("a rank that one of another size wants to join with learns of it, too") {
  const auto root = start_plane(), second = start_plane(), other = start_plane();
  const auto id = make_id(*root);
  const auto a = join(*root, *id, 3, 0), b = join(*second, *id, 3, 1);
  const auto c = join(*other, *id, 4, 3);
  for (const auto& member : {a, c})
    require_failed_with(*member, Code::Mismatch, {0, 3}, "of 4 ranks");
  require_failed_with(*b, Code::Mismatch, {0}, "of 4 ranks");
}

TEST_CASE("a rank that comes late to a failed job learns why at once") {
  const auto root = start_plane(), other = start_plane();
  const auto id = make_id(*root);
  join(*root, *id, 3, 0)->abort(Status(Code::Aborted, "not today"));
  const auto late = join(*other, *id, 3, 1);
  require_failed_with(*late, Code::RemoteError, {0}, "not today");
}

TEST_CASE("a root tells those who come late why its last 64 failed jobs failed") {
  Settings settings = loopback_settings();
  settings.init_timeout_s = 2;
  const auto root = start_plane(), other = start_plane();
  std::vector<trust::UniqueId> ids;
  for (int job = 0; job < 80; ++job) {
    ids.push_back(make_id(*root).value());
    const auto member = join(*root, ids.back(), 3, 0);
    member->abort(Status(Code::Aborted, "not today"));
    member->leave();
  }
  for (std::size_t job = 80 - 64; job < 80; ++job) {
    const auto late = join(*other, ids[job], 3, 1, settings);
    require_failed_with(*late, Code::RemoteError, {0}, "not today");
  }
}

TEST_CASE("who hears of a death also hears whose word it is") {
  // The process that made the id has no rank of its own yet, and sees a guest's connection break:
  // the fault may as well be its own.
  const auto maker = start_plane(), other = start_plane(), third = start_plane();
  const auto id = make_id(*maker);
  const auto waits = join(*other, *id, 4, 1);
  const trust::ProcessIdentity dying = new_process("gyre-dying");
  auto peer = std::make_unique<ScriptedPeer>(*maker, *id, dying);
  peer->open_link(2);
  control::JoinMessage message;
  message.size = 4;
  message.rank = 2;
  message.init_timeout_ms = 20'000;
  message.liveness_ms = 10'000;
  message.process = dying;
  peer->say_on(2, control::Kind::join, encode(message));
  peer->open_link(4);  // what was said before has been read
  peer.reset();
  const std::string_view word = "reported by the process that made the unique id";
  require_failed_with(*waits, Code::RemoteError, {2}, word);
  const auto late = join(*third, *id, 4, 3);
  require_failed_with(*late, Code::RemoteError, {2}, word);
}

TEST_CASE("two ranks with one number are both told, wherever they live") {
  const bool same_process = GENERATE(false, true);
  const auto root = start_plane(), other = start_plane();
  const auto id = make_id(*root);
  auto& second = same_process ? *root : *other;
  const auto a = join(*root, *id, 3, 1), b = join(second, *id, 3, 1), c = join(*other, *id, 3, 0);
  for (const auto& member : {a, b, c})
    require_failed_with(*member, Code::Mismatch, {1}, "rank 1 joined twice");
}

TEST_CASE("a rank out of range is refused on the spot") {
  const auto plane = start_plane();
  const auto id = make_id(*plane);
  for (const int rank : {-1, 2, 100})
    CHECK(plane->join(*id, 2, rank, {}, loopback_settings()).status().code() ==
          Code::InvalidArgument);
  CHECK(plane->join(*id, 0, 0, {}, loopback_settings()).status().code() == Code::InvalidArgument);
}

TEST_CASE("ranks that do not come are named when the time to meet is over") {
  Settings settings = loopback_settings();
  settings.init_timeout_s = 1;
  const auto root = start_plane(), other = start_plane();
  const auto id = make_id(*root);
  const auto a = join(*root, *id, 5, 0, settings), b = join(*other, *id, 5, 3, settings);
  for (const auto& member : {a, b})
    require_failed_with(*member, Code::Timeout, {1, 2, 4}, "ranks 1, 2, 4 did not join within 1");
}

TEST_CASE("a root that cannot be reached is an error at the deadline") {
  Settings settings = loopback_settings();
  settings.init_timeout_s = 1;
  const auto plane = start_plane();
  trust::UniqueId id;
  {
    const auto gone = start_plane();
    id = *make_id(*gone);
  }
  const auto member = join(*plane, id, 2, 1, settings);
  require_failed_with(*member, Code::Timeout, {0}, "ECONNREFUSED");
}

TEST_CASE("a root that stands still while ranks come together is named, as rank 0's process") {
  Settings settings = loopback_settings();
  settings.init_timeout_s = 1;
  const FileDescriptor event(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<bool> goes_on{false};
  const auto root = start_plane(), other = start_plane();
  const auto id = make_id(*root);
  const auto first = join(*root, *id, 3, 0), second = join(*other, *id, 3, 1, settings);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it is linked, and rank 2 missing
  REQUIRE(
      root->watch(*id, event.get(), [&] { return !soon([&] { return goes_on.load(); }); }).ok());
  require_failed_with(*second, Code::Timeout, {0}, "did not say who the ranks are within 1");
  CHECK(second->failure().message().find("made the unique id") != std::string_view::npos);
  goes_on = true;
}

TEST_CASE("what a process's control thread throws ends its communicators, and all ranks hear") {
  const FileDescriptor event(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  Meeting meeting(3, 3);
  meeting.require_joined();
  const auto throw_once = [&]() -> bool {
    eventfd_t value = 0;
    if (eventfd_read(event.get(), &value) != 0) return true;
    throw std::bad_alloc();
  };
  REQUIRE(meeting.planes[1]->watch(meeting.id, event.get(), throw_once).ok());
  require_failed_with(*meeting.members[1], Code::SystemError, {1}, "out of memory");
  for (const std::size_t rank : {0U, 2U})
    require_failed_with(*meeting.members[rank], Code::SystemError, {1}, "out of memory");
}

TEST_CASE("an id that is over is refused by the process that made it") {
  const auto plane = start_plane();
  const auto id = make_id(*plane);
  const auto member = join(*plane, *id, 1, 0);
  REQUIRE(settles(*member));
  member->leave();
  Status again;
  REQUIRE(soon([&] {
    again = plane->join(*id, 1, 0, {}, loopback_settings()).status();
    return !again.ok();
  }));
  CHECK(again.code() == Code::InvalidUsage);
}

TEST_CASE("ranks may leave in any order, and then end, without a failure") {
  const int first = GENERATE(0, 1, 9, 10);
  Meeting meeting(11, 11);
  meeting.require_joined();
  for (int i = 0; i < 11; ++i) {
    const auto rank = static_cast<std::size_t>((first + i) % 11);
    meeting.members[rank]->leave();
    CHECK(meeting.members[rank]->state() == State::left);
    meeting.planes[rank].reset();
    for (const auto& member : meeting.members) REQUIRE_FALSE(member->failed());
  }
}

TEST_CASE("a process that ends without leaving is named by every rank") {
  const int victim = GENERATE(0, 1, 10);
  Meeting meeting(11, 22);
  meeting.require_joined();
  meeting.planes[static_cast<std::size_t>(victim)].reset();
  for (std::size_t rank = 0; rank < 22; ++rank)
    require_failed_with(*meeting.members[rank], Code::RemoteError, {victim, victim + 11},
                        "ended without leaving");
}

TEST_CASE("a root without ranks of its own may end once the others have joined") {
  auto maker = start_plane();
  const auto a = start_plane(), b = start_plane();
  const auto id = make_id(*maker);
  const auto first = join(*a, *id, 2, 0), second = join(*b, *id, 2, 1);
  REQUIRE(settles(*first));
  REQUIRE(settles(*second));
  CHECK(first->roster().processes.size() == 3);
  maker.reset();
  first->leave();
  CHECK_FALSE(second->failed());
}

TEST_CASE("jobs that are over leave no descriptor behind, however many there were") {
  const auto root = start_plane(), other = start_plane();
  const auto idle = entries("/proc/self/fd");
  for (int round = 0; round < 50; ++round) {
    const auto id = make_id(*root);
    const auto a = join(*root, *id, 2, 0), b = join(*other, *id, 2, 1);
    REQUIRE(settles(*a));
    REQUIRE(settles(*b));
    if (round % 2 == 1) a->abort(Status(Code::Aborted, "no more"));
    REQUIRE((round % 2 == 0 || fails(*b)));
    a->leave();
    b->leave();
  }
  CHECK(soon([&] { return entries("/proc/self/fd") == idle; }));
}

TEST_CASE("a forked child cannot use its parent's control plane") {
  Meeting meeting(2, 2);
  meeting.require_joined();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = make_id(*meeting.planes[0]).status().code() == Code::InvalidUsage &&
                         meeting.members[0]->send(1, 0, {}).code() == Code::InvalidUsage;
    meeting.members[0]->abort({});
    meeting.members[0]->leave();
    meeting.planes.clear();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  REQUIRE(meeting.members[0]->send(1, 4, text("still here")).ok());
  CHECK(next_message(*meeting.members[1], 0, 4) == text("still here"));
}

}  // namespace control_test
