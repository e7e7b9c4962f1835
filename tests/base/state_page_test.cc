// State pages, the memory of a process that tools read: records stay consistent while they are
// written, rank states come and go, and memory that is no state page is refused.
#include "lib/base/state_page.h"

#include "lib/base/flight_file.h"
#include "lib/base/state_page_reader.h"
#include "tests/support/catch.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

namespace state_page_test {

using namespace gyre;

namespace {

// Whole if all its words follow from the first.
struct Chain {
  std::array<std::uint64_t, 24> words{};
  static Chain from(std::uint64_t first) {
    Chain chain;
    for (std::uint64_t& word : chain.words) word = first, first = first * 6364136223846793005U + 1;
    return chain;
  }
  bool is_whole() const {
    return words == from(words[0]).words || words == std::array<std::uint64_t, 24>{};
  }
};

StatePage::Owner owner() {
  StatePage::Owner one;
  one.host_name = "a-host";
  one.version = "1.2.3";
  one.names.functions.names[3] = FixedText<24>("gyreBroadcast");
  one.names.types.names[7] = FixedText<24>("float");
  return one;
}

RankIdentity identity(int rank, int size) {
  RankIdentity one;
  one.communicator = 0xabc;
  one.name = FixedText<16>("0000abcd");
  one.rank = rank;
  one.size = size;
  return one;
}

RankState claim(StatePage& state_page, int rank = 0, int size = 4) {
  auto rank_state = state_page.claim(owner, identity(rank, size));
  REQUIRE(rank_state.ok());
  return std::move(*rank_state);
}

StatePageSnapshot read(const StatePage& state_page) {
  auto view = read_state_page(state_page.descriptor());
  REQUIRE(view.ok());
  return std::move(*view);
}

FlightCall broadcast(std::uint64_t sequence, std::uint64_t bytes) {
  FlightCall call;
  call.sequence = sequence;
  call.count = bytes / 4;
  call.bytes = bytes;
  call.function = 3;
  call.type = 7;
  call.root = 2;
  return call;
}

std::uint64_t file_bytes(const StatePage& state_page) {
  struct stat status {};
  REQUIRE(fstat(state_page.descriptor(), &status) == 0);
  return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

TEST_CASE("a record that is read while it is written is whole", "[state_page]") {
  const auto record = std::make_unique<DoubleBuffered<Chain>>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop.load(); ++i) record->write(Chain::from(i));
  });
  std::uint64_t seen = 0, torn = 0;
  const std::int64_t until = SystemClock::read() + 20 * ns_per_s;
  while ((record->writes() < 100000 || seen < 20000) && SystemClock::read() < until) {
    const auto value = record->read();
    if (value) ++seen, torn += !value->is_whole();
  }
  stop = true;
  writer.join();
  CHECK(torn == 0);
  CHECK(seen > 0);
}

TEST_CASE("a record of a process that is stopped in the midst of writing is whole",
          "[state_page]") {
  void* memory = mmap(nullptr, sizeof(DoubleBuffered<Chain>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto& record = *reinterpret_cast<DoubleBuffered<Chain>*>(memory);
  const pid_t child = fork();
  if (child == 0)
    for (std::uint64_t i = 1;; ++i) record.write(Chain::from(i));
  REQUIRE(child > 0);
  std::mt19937 random(1);
  int whole = 0;
  constexpr int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    usleep(static_cast<useconds_t>(random() % 300));
    kill(child, SIGSTOP);
    waitpid(child, nullptr, WUNTRACED);
    const auto value = record.read();
    whole += value && value->is_whole();
    kill(child, SIGCONT);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(record.writes() > rounds);
  munmap(memory, sizeof(DoubleBuffered<Chain>));
  CHECK(whole == rounds);
}

TEST_CASE("flights that are read while others replace them belong together", "[state_page]") {
  StatePage state_page;
  RankState rank_state = claim(state_page);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    OpenFlightEntry flight;
    for (std::uint64_t i = 1; !stop.load(); ++i) {
      rank_state.begin(flight, broadcast(i, 4 * i));
      rank_state.end(flight, static_cast<std::uint8_t>(i % 7));
    }
  });
  std::uint64_t seen = 0, wrong = 0;
  const std::int64_t until = SystemClock::read() + 20 * ns_per_s;
  for (int i = 0; i < 100 || (seen < 10000 && SystemClock::read() < until); ++i) {
    for (const TimedFlightEntry& timed : read_rank_state(rank_state).flights) {
      const FlightEntry& flight = timed.flight;
      const std::uint64_t serial = flight.serial;
      ++seen;
      wrong += flight.call.sequence != serial || flight.call.count != serial ||
               flight.call.bytes != 4 * serial || flight.call.function != 3 ||
               (timed.end_ns && flight.outcome != serial % 7);
    }
  }
  stop = true;
  writer.join();
  CHECK(wrong == 0);
  CHECK(seen > 0);
}

TEST_CASE("a rank state shows its identity, wait, peers, failure and flights", "[state_page]") {
  StatePage state_page;
  RankState rank_state = claim(state_page, 1, 3);
  rank_state.note_caller();
  RankPeers peers;
  peers.hosts = {{{1}, "here"}, {{2}, "there"}};
  peers.peers = {{10, 0}, {11, 0}, {12, 1}};
  rank_state.show_peers(peers);
  OpenFlightEntry flight;
  rank_state.begin(flight, broadcast(1, 128 << 10));
  rank_state.end(flight, 0);
  const std::uint64_t serial = rank_state.begin(flight, broadcast(2, 64));
  rank_state.stamp(flight);
  WaitRecord wait;
  wait.sequence = 2;
  wait.serial = serial;
  wait.phase = WaitPhase::moving;
  wait.what = BlockedOn::data;
  wait.peer = 2;
  rank_state.tell_wait(WaitLane::collective, wait);
  const RankSnapshot view = read(state_page).rank_states.at(0);
  CHECK(view.identity.communicator == 0xabc);
  CHECK(view.identity.rank == 1);
  CHECK(view.caller == static_cast<std::uint32_t>(gettid()));
  REQUIRE(view.waits.size() == 1);
  CHECK(view.wait_of(serial) == &view.waits[0]);
  CHECK(view.waits[0].peer == 2);
  CHECK(view.waits[0].what == BlockedOn::data);
  CHECK(view.waits[0].communicator == 0xabc);
  REQUIRE(view.peers.size() == 3);
  CHECK(view.peers[2].pid == 12);
  CHECK(view.hosts[view.peers[2].host].name.view() == "there");
  CHECK_FALSE(view.failure);
  CHECK(view.begun == 2);
  REQUIRE(view.last_done() != nullptr);
  CHECK(view.last_done()->flight.call.sequence == 1);
  CHECK(view.last_done()->flight.end == FlightEnd::exact);
  REQUIRE(view.open().size() == 1);
  CHECK(view.open()[0]->flight.call.sequence == 2);
  CHECK(SystemClock::read() - *view.open()[0]->start_ns < 60 * ns_per_s);
  CHECK(*view.open()[0]->start_ns >= *view.last_done()->end_ns - ns_per_ms);

  rank_state.tell_wait(WaitLane::transfers, wait);
  rank_state.end_wait(WaitLane::collective);
  CHECK(read(state_page).rank_states.at(0).waits.size() == 1);
  rank_state.end_wait(WaitLane::transfers);
  rank_state.fail(Status(Code::RemoteError, "rank 2 died").blame({2}));
  rank_state.fail(Status(Code::Timeout, "a later one"));
  const RankSnapshot after = read(state_page).rank_states.at(0);
  CHECK(after.waits.empty());
  REQUIRE(after.failure);
  CHECK(after.failure->text.view() == "rank 2 died");
  CHECK(after.failure->culprits[0] == 2);
}

TEST_CASE("a wait that goes on keeps its beginning, another one gets its own", "[state_page]") {
  StatePage state_page;
  RankState rank_state = claim(state_page);
  WaitRecord wait;
  wait.phase = WaitPhase::moving;
  wait.what = BlockedOn::data;
  wait.peer = 1;
  rank_state.tell_wait(WaitLane::collective, wait);
  const std::int64_t first = read(state_page).rank_states.at(0).waits.at(0).since_ns;
  usleep(2000);
  rank_state.tell_wait(WaitLane::collective, wait);
  CHECK(read(state_page).rank_states.at(0).waits.at(0).since_ns == first);
  wait.peer = 2;
  rank_state.tell_wait(WaitLane::collective, wait);
  CHECK(read(state_page).rank_states.at(0).waits.at(0).since_ns > first);
}

TEST_CASE("waits that are over are kept in their order, the last 1,024", "[state_page]") {
  StatePage state_page;
  RankState rank_state = claim(state_page);
  WaitRecord wait;
  wait.phase = WaitPhase::moving;
  wait.what = BlockedOn::data;
  wait.peer = 1;
  rank_state.end_wait(WaitLane::collective);
  CHECK(read(state_page).rank_states.at(0).past_waits.empty());
  rank_state.tell_wait(WaitLane::collective, wait);
  rank_state.tell_wait(WaitLane::collective, wait);  // goes on
  CHECK(read(state_page).rank_states.at(0).past_waits.empty());
  wait.peer = 2;
  rank_state.tell_wait(WaitLane::collective, wait);
  rank_state.end_wait(WaitLane::collective);
  const auto two = read(state_page).rank_states.at(0).past_waits;
  REQUIRE(two.size() == 2);
  CHECK(two[0].wait.peer == 1);
  CHECK(two[1].wait.peer == 2);
  CHECK(two[0].until_ns == two[1].wait.since_ns);
  CHECK(two[1].until_ns >= two[1].wait.since_ns);
  for (std::uint32_t i = 0; i < past_wait_count; ++i) {
    wait.chunk = i;
    rank_state.tell_wait(WaitLane::transfers, wait);
    rank_state.end_wait(WaitLane::transfers);
  }
  const auto last = read(state_page).rank_states.at(0).past_waits;
  REQUIRE(last.size() == past_wait_count);
  for (std::uint32_t i = 0; i < past_wait_count; ++i) CHECK(last[i].wait.chunk == i);
}

TEST_CASE("a short flight that waited is told from its start, one that did not by the tick",
          "[state_page]") {
  StatePage state_page;
  RankState rank_state = claim(state_page);
  OpenFlightEntry flight;
  rank_state.begin(flight, broadcast(1, 8));
  rank_state.stamp(flight);
  rank_state.end(flight, 0);
  rank_state.begin(flight, broadcast(2, 8));
  rank_state.end(flight, 0);
  rank_state.begin(flight, broadcast(3, 8));
  rank_state.stamp(flight);
  flight.time_end();
  rank_state.end(flight, 0);
  const RankSnapshot view = read(state_page).rank_states.at(0);
  REQUIRE(view.flights.size() == 3);
  CHECK(view.flights[0].flight.end == FlightEnd::soon);
  CHECK(view.flights[0].end_ns == view.flights[0].start_ns);
  CHECK(view.flights[1].flight.end == FlightEnd::late);
  CHECK_FALSE(view.flights[1].start_ns);
  CHECK(std::abs(SystemClock::read() - *view.flights[1].end_ns) < 60 * ns_per_s);
  CHECK(view.flights[2].flight.end == FlightEnd::exact);
}

TEST_CASE("what ended well is counted by function, what failed is not", "[state_page]") {
  StatePage state_page;
  RankState first = claim(state_page);
  RankState second = claim(state_page, 1, 3);
  OpenFlightEntry flight;
  for (std::uint64_t i = 1; i <= 3000; ++i) {
    FlightCall call = broadcast(i, i);
    call.function = i % 3 == 0 ? 1 : 31;
    first.begin(flight, call);
    first.end(flight, i % 5 == 0 ? 6 : 0);
    first.end(flight, 0);  // it is over already
  }
  FlightCall unknown = broadcast(1, 8);
  unknown.function = 32;
  second.begin(flight, unknown);
  second.end(flight, 0);
  std::uint64_t operations[2] = {}, bytes[2] = {};
  for (std::uint64_t i = 1; i <= 3000; ++i)
    if (i % 5 != 0) operations[i % 3 == 0] += 1, bytes[i % 3 == 0] += i;
  const auto heads = read_heads(state_page);
  REQUIRE(heads.size() == 2);
  CHECK(heads[0].begun == 3000);
  CHECK(heads[0].done[1].operations == operations[1]);
  CHECK(heads[0].done[1].bytes == bytes[1]);
  CHECK(heads[0].done[31].operations == operations[0]);
  CHECK(heads[0].done[31].bytes == bytes[0]);
  CHECK(heads[0].done[0].operations == 0);
  CHECK(heads[1].identity.rank == 1);
  for (const auto& done : heads[1].done) CHECK(done.operations == 0);
}

TEST_CASE("heads tell waits, meetings and failures, and go with their rank states",
          "[state_page]") {
  StatePage state_page;
  CHECK(read_heads(state_page).empty());
  {
    RankState rank_state = claim(state_page, 0, 2);
    CHECK_FALSE(read_heads(state_page).at(0).has_met);
    RankPeers peers;
    peers.hosts = {{{1}, "here"}};
    peers.peers = {{10, 0}, {11, 0}};
    rank_state.show_peers(peers);
    WaitRecord wait;
    wait.phase = WaitPhase::moving;
    wait.what = BlockedOn::data;
    wait.peer = 1;
    rank_state.tell_wait(WaitLane::collective, wait);
    const RankSummary waiting = read_heads(state_page).at(0);
    CHECK(waiting.has_met);
    CHECK_FALSE(waiting.failure);
    REQUIRE(waiting.waits.size() == 1);
    CHECK(waiting.waits[0].peer == 1);
    CHECK(waiting.long_waits == 0);
    rank_state.end_wait(WaitLane::collective);
    rank_state.fail(Status(Code::RemoteError, "rank 1 died").blame({1}));
    const RankState moved = std::move(rank_state);
    const RankSummary failed = read_heads(state_page).at(0);
    CHECK(failed.waits.empty());
    CHECK(failed.long_waits == 1);
    REQUIRE(failed.failure);
    CHECK(failed.failure->code == 6);
  }
  CHECK(read_heads(state_page).empty());
}

// Bytes of memory that the file of a state page takes.
std::int64_t resident_bytes(const StatePage& state_page) {
  struct stat file {};
  REQUIRE(fstat(state_page.descriptor(), &file) == 0);
  return file.st_blocks * 512;
}

TEST_CASE("heads touch no page that the rank state has not touched itself", "[state_page]") {
  StatePage state_page;
  const RankState rank_state = claim(state_page);
  const std::int64_t before = resident_bytes(state_page);
  CHECK(read_heads(state_page).size() == 1);
  CHECK(resident_bytes(state_page) == before);
  // Or the figures above say nothing: who reads all of it does touch more.
  CHECK(read_rank_state(rank_state).flights.empty());
  CHECK(resident_bytes(state_page) > before);
}

TEST_CASE("only the last 1,024 flights are kept", "[state_page]") {
  StatePage state_page;
  RankState rank_state = claim(state_page);
  OpenFlightEntry flight;
  for (std::uint64_t i = 1; i <= 3000; ++i) {
    rank_state.begin(flight, broadcast(i, 8));
    rank_state.end(flight, 0);
  }
  const RankSnapshot view = read(state_page).rank_states.at(0);
  REQUIRE(view.flights.size() == flight_count);
  CHECK(view.flights.front().flight.serial == 3000 - flight_count + 1);
  CHECK(view.flights.back().flight.serial == 3000);
}

TEST_CASE("rank states that come and go leave no memory behind and begin empty", "[state_page]") {
  StatePage state_page;
  const RankState first = claim(state_page);
  std::vector<RankState> some;
  for (int i = 0; i < 20; ++i) some.push_back(claim(state_page, i % 4));
  some.clear();
  const std::uint64_t bytes = file_bytes(state_page);
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    if (some.size() < 20 && random() % 2 == 0) {
      some.push_back(claim(state_page, 0, 1 + static_cast<int>(random() % 4)));
      OpenFlightEntry flight;
      REQUIRE(read_rank_state(some.back()).flights.empty());
      some.back().begin(flight, broadcast(1, 8));
      some.back().end(flight, 0);
    } else if (!some.empty()) {
      std::swap(some[random() % some.size()], some.back());
      some.pop_back();
    }
  }
  CHECK(read(state_page).rank_states.size() == some.size() + 1);
  CHECK(file_bytes(state_page) <= bytes);
  some.clear();
  CHECK(read(state_page).rank_states.size() == 1);
}

TEST_CASE("more communicators than the directory holds still have rank states", "[state_page]") {
  StatePage state_page;
  std::vector<RankState> all;
  for (std::uint32_t i = 0; i < max_rank_states + 3; ++i) all.push_back(claim(state_page));
  OpenFlightEntry flight;
  all.back().begin(flight, broadcast(5, 8));
  CHECK(read_rank_state(all.back()).flights.size() == 1);
  CHECK(read(state_page).rank_states.size() == max_rank_states);
}

TEST_CASE("a file limit costs the tools their view and nothing else", "[state_page]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  StatePage state_page;
  auto rank_state = state_page.claim(owner, identity(0, 2));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  REQUIRE(rank_state.ok());
  CHECK(state_page.descriptor() == -1);
  OpenFlightEntry flight;
  rank_state->begin(flight, broadcast(1, 8));
  CHECK(read_rank_state(*rank_state).flights.size() == 1);
}

TEST_CASE("what is no board, or a spoilt one, is refused or read without harm", "[state_page]") {
  CHECK_FALSE(read_state_page(-1).ok());
  const FileDescriptor unsealed(memfd_create("gyre-wait", MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(unsealed.get(), 1 << 20) == 0);
  CHECK_FALSE(read_state_page(unsealed.get()).ok());
  REQUIRE(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  CHECK_FALSE(read_state_page(unsealed.get()).ok());

  StatePage state_page;
  RankState rank_state = claim(state_page);
  rank_state.show_peers({{{{1}, "here"}}, {{10, 0}, {11, 0}, {12, 0}, {13, 0}}});
  OpenFlightEntry flight;
  for (std::uint64_t i = 1; i <= 50; ++i) rank_state.begin(flight, broadcast(i, 8));
  const std::uint64_t bytes = file_bytes(state_page);
  std::vector<char> good(bytes);
  REQUIRE(pread(state_page.descriptor(), good.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const FileDescriptor file(memfd_create("gyre-wait", MFD_ALLOW_SEALING));
    std::vector<char> spoilt = good;
    // Mostly the heads: the flights are many.
    for (int i = 0; i < 20; ++i) {
      const std::size_t reach = random() % 2 ? sizeof(StatePageMemory) + 4096 : bytes;
      spoilt[random() % reach] = static_cast<char>(random());
    }
    const std::size_t length = random() % 4 ? bytes : random() % bytes;
    REQUIRE(write(file.get(), spoilt.data(), length) == static_cast<ssize_t>(length));
    REQUIRE(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    const auto view = read_state_page(file.get());
    if (!view.ok()) continue;
    for (const RankSnapshot& one : view->rank_states) {
      CHECK(one.identity.rank < one.identity.size);
      for (const char c : flight_text(view->head, one))
        if (c != '\n' && (c < ' ' || c > '~')) FAIL("an unprintable character");
    }
  }
}

TEST_CASE("flights are written as lines of JSON, to the file that the pattern names",
          "[state_page]") {
  StatePage state_page;
  RankState rank_state = claim(state_page, 1, 2);
  rank_state.show_peers({{{{1}, "he\"re"}}, {{10, 0}, {11, 0}}});
  OpenFlightEntry flight;
  rank_state.begin(flight, broadcast(1, 128 << 10));
  rank_state.end(flight, 6);
  rank_state.begin(flight, broadcast(2, 8));
  WaitRecord wait;
  wait.phase = WaitPhase::moving;
  wait.what = BlockedOn::credit;
  rank_state.tell_wait(WaitLane::collective, wait);
  rank_state.end_wait(WaitLane::collective);
  rank_state.fail(Status(Code::RemoteError, "it \"broke\"\n").blame({0}));
  const std::string folder = fmt::format("/tmp/gyre-board-test-{}", getpid());
  std::filesystem::create_directory(folder);
  const StatePageHead head = *state_page.memory().head.read();
  const auto path = write_flight_file(folder + "/%h-%r", head, read_rank_state(rank_state));
  REQUIRE(path.ok());
  CHECK(*path == folder + "/a-host-1");
  std::ifstream file(*path);
  std::string line;
  std::vector<nlohmann::json> lines;
  while (std::getline(file, line)) lines.push_back(nlohmann::json::parse(line));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0]["failure"]["text"] == "it \"broke\"?");
  CHECK(lines[0]["peers"][1]["host"] == "he\"re");
  CHECK(lines[1]["function"] == "gyreBroadcast");
  CHECK(lines[1]["outcome"] == 6);
  CHECK(lines[2]["end_ns"].is_null());
  CHECK(lines[3]["wait"] == "credit");
  CHECK(lines[3]["end_ns"] >= lines[3]["start_ns"]);
  std::filesystem::remove_all(folder);
}

}  // namespace state_page_test
