// lib/base: statuses, exceptions, settings, sizes, waits.
#include "lib/base/caught.h"
#include "lib/base/errno_text.h"
#include "lib/base/owned.h"
#include "lib/base/settings.h"
#include "lib/base/units.h"
#include "lib/base/wait.h"
#include "tests/support/catch.h"

#include <cerrno>
#include <new>
#include <stdexcept>

namespace base_test {

using namespace gyre;

TEST_CASE("a status keeps its code and its cause when callers add to it", "[base]") {
  Status status = Status::from_errno("open(/x)", ENOENT);
  status = std::move(status).while_doing("reading the job file").blame({3});
  CHECK(status.code() == Code::SystemError);
  CHECK(status.message() == "reading the job file: open(/x): ENOENT (No such file or directory)");
  CHECK(status.culprits() == std::vector<int>{3});
  const Status copy = status;
  CHECK(copy.message() == status.message());
  CHECK(Status().ok());
}

TEST_CASE("an error number has a text, known or not", "[base]") {
  CHECK(errno_text(ECONNREFUSED) == "ECONNREFUSED (Connection refused)");
  CHECK(Status::from_errno("read", 12345).message() == "read: errno 12345 (Unknown error 12345)");
}

TEST_CASE("whatever is thrown becomes an error", "[base]") {
  const auto error_of = [](void (*body)()) {
    return caught([&] {
      body();
      return Status();
    });
  };
  CHECK(error_of([] {}).ok());
  CHECK(error_of([] { throw std::bad_alloc(); }).code() == Code::SystemError);
  CHECK(error_of([] { throw ForkInCallback(); }).code() == Code::InvalidUsage);
  const Status said = error_of([] { throw std::length_error("too long"); });
  CHECK(said.code() == Code::InternalError);
  CHECK(said.message() == "too long");
  CHECK(error_of([] { throw 7; }).code() == Code::InternalError);
}

TEST_CASE("what is added to a status is not added to its copies", "[base]") {
  const Status first(Code::RemoteError, "rank 3 died");
  Status second = first;
  second = std::move(second).while_doing("a call").blame({3});
  CHECK(first.message() == "rank 3 died");
  CHECK(first.culprits().empty());
  CHECK(second.message() == "a call: rank 3 died");
  second = first;
  CHECK(second.message() == "rank 3 died");
  Status none = Status::out_of_memory();
  CHECK(none.code() == Code::SystemError);
  CHECK(none.message() == "out of memory");
  none = std::move(none).while_doing("joining").blame({1});
  CHECK(none.message() == "joining: out of memory");
  CHECK(Status::out_of_memory().message() == "out of memory");
  CHECK(Status::out_of_memory().culprits().empty());
}

TEST_CASE("a setting is parsed whole or refused with its name and value", "[base]") {
  const auto refused = [](const char* name, const char* value) {
    std::vector<std::string> warnings;
    const auto parsed = parse_settings({{name, value}}, &warnings);
    REQUIRE_FALSE(parsed.ok());
    const std::string text(parsed.status().message());
    CHECK(text.find(name) != text.npos);
    CHECK(text.find(std::string("\"") + value + "\"") != text.npos);
  };
  refused("GYRE_TIMEOUT", "4abc");
  refused("GYRE_TIMEOUT", "");
  refused("GYRE_TIMEOUT", "-1");
  refused("GYRE_TIMEOUT", "0");
  refused("GYRE_TIMEOUT", "1e9999");
  refused("GYRE_DEBUG", "LOUD");
  refused("GYRE_SHM_DISABLE", "yes");
  refused("GYRE_BUFFSIZE", "4KB");
  refused("GYRE_ALGO", "");
  const auto good = parse_settings(
      {{"GYRE_TIMEOUT", "7"}, {"GYRE_BUFFSIZE", "64K"}, {"GYRE_DEBUG", "info"}}, nullptr);
  REQUIRE(good.ok());
  CHECK(good->timeout_s == 7);
  CHECK(good->slot_bytes == 65536);
  CHECK(good->debug == "INFO");
}

TEST_CASE("the nearest word is the one with the fewest slips of a typist", "[base]") {
  CHECK(nearest("biuld", {"bench", "build", "test"}) == "build");
  CHECK(nearest("buld", {"bench", "build", "test"}) == "build");
  CHECK(nearest("builld", {"bench", "build", "test"}) == "build");
  CHECK(nearest("zebra", {"bench", "build", "test"}).empty());
}

TEST_CASE("a setting says what it accepts, and where none holds", "[base]") {
  for (const Setting& setting : settings_table()) {
    CAPTURE(setting.name);
    CHECK(default_text(setting).find("-1") ==
          (setting.name == "GYRE_SPIN_COUNT" ? 0 : std::string::npos));
    CHECK_FALSE(accepted_values(setting).empty());
    if (setting.name == "GYRE_RANK") CHECK(default_text(setting) == "unset");
    if (setting.name == "GYRE_DEBUG") CHECK(default_text(setting) == "WARN");
  }
  const Status refused = parse_settings({{"GYRE_DEBUG", "DEBUG"}}, nullptr).status();
  CHECK(refused.message() ==
        "GYRE_DEBUG=\"DEBUG\" is not accepted: give one of NONE, VERSION, WARN, INFO, TRACE; "
        "see gyre settings GYRE_DEBUG");
}

TEST_CASE("an unknown GYRE_ name warns with the nearest known one", "[base]") {
  std::vector<std::string> warnings;
  REQUIRE(parse_settings({{"GYRE_TIMEOT", "7"}}, &warnings).ok());
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("did you mean GYRE_TIMEOUT?") != std::string::npos);
  // That of PyTorch's backend, which reads it by itself.
  REQUIRE(parse_settings({{"GYRE_TORCH_INSTEAD_OF", "gloo"}}, &warnings).ok());
  CHECK(warnings.size() == 1);
}

TEST_CASE("sizes take units of 1024 and nothing else", "[base]") {
  CHECK(*parse_size("1.5K", 0, 1 << 20) == 1536);
  CHECK(*parse_size("2g", 0, 1LL << 40) == 2LL << 30);
  for (const char* wrong : {"", "K", "1KB", "-1", "1..5", "0x10", "1e3", "nan"})
    CHECK_FALSE(parse_size(wrong, 0, 1LL << 40).ok());
}

TEST_CASE("checked arithmetic refuses to wrap", "[base]") {
  CHECK_FALSE(checked_multiply(1ULL << 33, 1ULL << 31));
  CHECK(*checked_multiply(1ULL << 32, 8) == 1ULL << 35);
}

namespace {
struct ManualClock final : Clock {
  std::int64_t now = 0;
  std::int64_t now_ns() const override { return now; }
};
}  // namespace

TEST_CASE("a wait spins, yields, then sleeps until its deadline", "[base]") {
  ManualClock clock;
  Wait wait(clock, {.spins = 2, .yields = 2, .max_sleep_ns = 1000}, 5000);
  int sleeps = 0;
  const auto arm = [&](WaitSet&) { return ++sleeps, clock.now += 1000, false; };
  int turns = 0;
  while (wait.pause(arm, [] {}) == Wait::Outcome::again) REQUIRE(++turns < 100);
  CHECK(sleeps == 5);
  CHECK(turns == 2 + 2 + 4);
}

TEST_CASE("a wait is long after some spins, some yields or a millisecond", "[base]") {
  ManualClock clock;
  clock.now = ns_per_s;
  const auto arm = [](WaitSet&) { return false; };
  const auto turns_until_long = [&](Wait& wait, std::int64_t turn_ns) {
    for (int turns = 0; turns < 5000; ++turns) {
      if (wait.is_long()) return turns;
      (void)wait.pause(arm, [] {});
      clock.now += turn_ns;
    }
    return -1;
  };
  Wait spinning(clock, {.spins = 2000, .yields = 200}, ns_per_s);
  CHECK(turns_until_long(spinning, 0) == 200);
  Wait yielding(clock, {.spins = 0, .yields = 200}, ns_per_s);
  CHECK(turns_until_long(yielding, 0) == 21);
  // Where other ranks run in between, a yield takes as long as they do.
  Wait crowded(clock, {.spins = 0, .yields = 200}, ns_per_s);
  CHECK(turns_until_long(crowded, ns_per_ms) == 2);
  crowded.progressed();
  CHECK_FALSE(crowded.is_long());
  CHECK(turns_until_long(crowded, ns_per_ms) == 2);
}

TEST_CASE("a wait whose yield took long sleeps instead for a hundred times that", "[base]") {
  struct SteppingClock final : Clock {
    mutable std::int64_t now = ns_per_s;
    std::int64_t step = 0;
    std::int64_t now_ns() const override { return now += step; }
  };
  SteppingClock clock;
  int sleeps = 0;
  const auto arm = [&](WaitSet&) { return ++sleeps, false; };
  Wait wait(clock, {.spins = 0, .yields = 3}, 100 * ns_per_s);
  const auto sleeps_in = [&](int turns, std::int64_t step_ns) {
    clock.step = step_ns;
    wait.progressed();
    sleeps = 0;
    for (int turn = 0; turn < turns; ++turn) (void)wait.pause(arm, [] {});
    return sleeps;
  };
  CHECK(sleeps_in(5, ns_per_us) == 2);
  CHECK(sleeps_in(5, 2 * ns_per_ms) == 4);  // the first yield has taken that
  CHECK(sleeps_in(5, ns_per_us) == 5);
  clock.now += 200 * ns_per_ms;
  (void)wait.pause(arm, [] {});  // looks at the clock
  CHECK(sleeps_in(5, ns_per_us) == 2);
}

TEST_CASE("a sleep ends when one of two words changes", "[base]") {
  std::atomic<std::uint32_t> a{0}, b{7};
  WaitSet set;
  set.add_futex(&a, 0);
  set.add_futex(&b, 6);  // has changed already
  const std::int64_t start = SystemClock::read();
  set.sleep(10 * ns_per_s);
  CHECK(SystemClock::read() - start < 5 * ns_per_s);
}

TEST_CASE("processors of several ranks are counted once each", "[base]") {
  CHECK(count_processors({"0000000000000001", "0000000000000002"}) == 2);
  CHECK(count_processors({"0000000000000003", "0000000000000003"}) == 2);
  CHECK(count_processors({"00000000000000000000000000000001", "000000000000000f"}) == 5);
  CHECK(count_processors({"", "junk", "zzzzzzzzzzzzzzzz"}) == 0);
  CHECK(count_processors({processor_mask()}) >= 1);
}

TEST_CASE("ranks that share processors do not spin", "[base]") {
  CHECK(wait_policy(2, 2, -1).spins > 0);
  CHECK(wait_policy(3, 2, -1).spins == 0);
  CHECK(wait_policy(3, 2, 77).spins == 77);
}

TEST_CASE("a range of memory holds its own bytes, and meets what shares one with it", "[base]") {
  std::byte memory[16];
  const MemoryRange range{memory + 4, 8};
  const auto holds = [&](std::uintptr_t from, std::uint64_t count) {
    return range.holds(reinterpret_cast<const void*>(range.begin() + from), count);
  };
  CHECK((holds(0, 8) && holds(3, 5) && holds(8, 0)));
  CHECK_FALSE(range.holds(memory + 3, 1));
  CHECK_FALSE(holds(0, 9));
  CHECK_FALSE(holds(9, 0));
  CHECK_FALSE(holds(4, UINT64_MAX));
  CHECK_FALSE(range.holds(nullptr, 1));
  const auto meets = [&](std::ptrdiff_t from, std::size_t bytes) {
    const MemoryRange other{memory + from, bytes};
    CHECK(range.meets(other) == other.meets(range));
    return range.meets(other);
  };
  CHECK((meets(0, 5) && meets(11, 5) && meets(6, 2) && meets(0, 16)));
  CHECK_FALSE(meets(0, 4));
  CHECK_FALSE(meets(12, 4));
}

}  // namespace base_test
