// The cache of keys by which NICs reach memory of callers: what is kept, what goes, and when.
#include "lib/transport/lasting_memory.h"
#include "lib/transport/pinned_pages.h"
#include "tests/support/catch.h"
#include "tests/support/fake_verbs/fake_verbs.h"
#include "transports/rdma/registration_cache.h"

#include <array>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace rdma_registration_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr std::uint64_t page = 4096;

struct Machine {
  explicit Machine(const RegistrationCache::CacheLimits& limits = {}) {
    const auto ports = find_rdma_ports(verbs, {});
    REQUIRE(ports.ok());
    for (const RdmaPort& port : ports->usable) {
      auto device = RdmaDevice::open(port, {});
      REQUIRE(device.ok());
      devices.push_back(std::move(*device));
    }
    cache = std::make_unique<RegistrationCache>(lasting, limits);
    made_before = fake.calls("reg_mr");
  }
  std::byte* allocate(std::uint64_t bytes) {
    const auto memory = regions.allocate(bytes);
    REQUIRE(memory.ok());
    return static_cast<std::byte*>(*memory);
  }
  bool holds(const void* memory, std::uint64_t bytes) {
    return cache->hold(memory, bytes, devices) != nullptr;
  }
  int registered() const { return fake.calls("reg_mr") - made_before; }
  int given_back() const { return fake.calls("dereg_mr"); }

  FakeVerbs fake{{.devices = {{.name = "fake0"}, {.name = "fake1"}}}};
  loaded::SharedVerbs verbs{&fake.table()};
  RegionTable regions;
  const std::shared_ptr<LastingMemory> lasting = std::make_shared<LastingMemory>(regions);
  RegistrationCache::NicList devices;
  std::unique_ptr<RegistrationCache> cache;
  int made_before = 0;
};

}  // namespace

TEST_CASE("a range is registered once with each device, and found by any part of it", "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(4 * page);
  const auto held = machine.cache->hold(memory, 4 * page, machine.devices);
  REQUIRE(held != nullptr);
  for (const auto& device : machine.devices) {
    REQUIRE(held->on(*device) != nullptr);
    CHECK(held->on(*device)->addr == memory);
    CHECK(held->on(*device)->pd == device->domain());
  }
  CHECK(machine.cache->hold(memory + 5, page, machine.devices) == held);
  CHECK(machine.cache->hold(memory + 4 * page - 1, 1, machine.devices) == held);
  CHECK(machine.registered() == 2);
  CHECK_FALSE(machine.holds(memory, 4 * page + 1));
  CHECK_FALSE(machine.holds(memory, 0));
  CHECK_FALSE(machine.holds(nullptr, 1));
}

TEST_CASE("a range that one device knows is told to another when that needs it", "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(page);
  const auto first = machine.cache->hold(memory, page, {machine.devices[0]});
  REQUIRE(first != nullptr);
  CHECK(first->on(*machine.devices[1]) == nullptr);
  CHECK(machine.cache->hold(memory, page, machine.devices) == first);
  CHECK(first->on(*machine.devices[1]) != nullptr);
  CHECK(machine.registered() == 2);
}

TEST_CASE("memory that may be unmapped at any time is never registered", "[rdma]") {
  Machine machine;
  std::vector<std::byte> plain(2 * page);
  CHECK_FALSE(machine.holds(plain.data(), page));
  CHECK(machine.registered() == 0);
  const std::uint64_t number = machine.lasting->add({plain.data(), page});
  if (!forks_copy_pinned_pages()) {
    CHECK_FALSE(machine.holds(plain.data(), page));
    return;
  }
  CHECK(machine.holds(plain.data(), page));
  CHECK(machine.holds(plain.data() + 7, page - 7));
  CHECK_FALSE(machine.holds(plain.data() + 1, page));
  CHECK_FALSE(machine.holds(plain.data() - 1, 2));
  CHECK(machine.lasting->remove(number));
  CHECK_FALSE(machine.lasting->remove(number));
  CHECK(machine.given_back() == 2);
  CHECK_FALSE(machine.holds(plain.data(), page));
}

TEST_CASE("what is freed or withdrawn has no key any more, and its address gets a new one",
          "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(2 * page);
  std::byte* const other = machine.allocate(page);
  REQUIRE(machine.holds(memory, 2 * page));
  REQUIRE(machine.holds(other, page));
  SECTION("freed") {
    REQUIRE(machine.regions.release(memory).ok());
    CHECK(machine.given_back() == 2);
    CHECK_FALSE(machine.holds(memory, page));
  }
  SECTION("withdrawn") {
    REQUIRE(machine.regions.lend(memory, page).region != region_staged);
    REQUIRE(machine.regions.withdraw(memory).ok());
    CHECK(machine.given_back() == 2);
    CHECK_FALSE(machine.holds(memory, page));
    CHECK(machine.holds(memory + page, page));
  }
  CHECK(machine.holds(other, page));
  CHECK(machine.cache->hold(other, page, machine.devices).use_count() == 2);
}

TEST_CASE("pages that a NIC reaches for another call keep their place", "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(page);
  REQUIRE(machine.regions.lend(memory, page / 2).region != region_staged);
  auto held = machine.cache->hold(memory + page / 2, page / 2, machine.devices);
  REQUIRE(held != nullptr);
  for (int turn = 0; turn < 2; ++turn) {
    const Status withdrawn = machine.regions.withdraw(memory);
    CHECK(withdrawn.message() == "a NIC reaches them for another call");
  }
  held.reset();
  CHECK(machine.regions.withdraw(memory).ok());
}

TEST_CASE("each page of a range that a call uses keeps its place, whoever asked for another",
          "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(2 * page);
  REQUIRE(machine.regions.lend(memory, page).region != region_staged);
  REQUIRE(machine.regions.lend(memory + page, page).region != region_staged);
  auto held = machine.cache->hold(memory, 2 * page, machine.devices);
  REQUIRE(held != nullptr);
  CHECK_FALSE(machine.regions.withdraw(memory).ok());
  CHECK_FALSE(machine.regions.withdraw(memory + page).ok());
  CHECK(machine.given_back() == 0);
  held.reset();
  CHECK(machine.given_back() == 2);
  CHECK(machine.regions.withdraw(memory + page).ok());
  CHECK(machine.regions.withdraw(memory).ok());
}

TEST_CASE("a connection that outlives its communicator gives its keys back", "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(page);
  auto lasting = std::make_shared<LastingMemory>(machine.regions);
  auto cache = std::make_unique<RegistrationCache>(lasting);
  const std::weak_ptr<LastingMemory> of_communicator = lasting;
  lasting.reset();
  CHECK_FALSE(of_communicator.expired());
  CHECK(cache->hold(memory, page, machine.devices) != nullptr);
  cache.reset();
  CHECK(of_communicator.expired());
  CHECK(machine.given_back() == 2);
  CHECK(machine.regions.release(memory).ok());
}

TEST_CASE("a buffer that was withdrawn is not registered, whoever else names it", "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(2 * page);
  (void)machine.lasting->add({memory, 2 * page});
  REQUIRE(machine.regions.lend(memory, page).region != region_staged);
  REQUIRE(machine.regions.withdraw(memory).ok());
  CHECK_FALSE(machine.holds(memory, page));
  CHECK_FALSE(machine.holds(memory, 2 * page));
  CHECK(machine.holds(memory + page, page));
}

TEST_CASE("beyond its limits the cache gives up what was not used for longest", "[rdma]") {
  const bool by_count = GENERATE(true, false);
  CAPTURE(by_count);
  Machine machine(by_count ? RegistrationCache::CacheLimits{.count = 3}
                           : RegistrationCache::CacheLimits{.bytes = 3 * page});
  std::array<std::byte*, 4> memory{};
  for (std::byte*& one : memory) one = machine.allocate(page);
  for (const int i : {0, 1, 2, 0, 3}) CHECK(machine.holds(memory[static_cast<unsigned>(i)], page));
  CHECK(machine.registered() == 2 * 4);
  CHECK(machine.given_back() == 2);
  for (const int i : {0, 2, 3}) CHECK(machine.holds(memory[static_cast<unsigned>(i)], page));
  CHECK(machine.registered() == 2 * 4);
  CHECK(machine.holds(memory[1], page));
  CHECK(machine.registered() == 2 * 5);
}

TEST_CASE("what a call holds is not given up: another range is copied", "[rdma]") {
  Machine machine({.count = 2});
  std::byte* const memory = machine.allocate(3 * page);
  auto first = machine.cache->hold(memory, page, machine.devices);
  const auto second = machine.cache->hold(memory + page, page, machine.devices);
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  CHECK_FALSE(machine.holds(memory + 2 * page, page));
  CHECK(machine.given_back() == 0);
  first.reset();
  CHECK(machine.holds(memory + 2 * page, page));
  CHECK(machine.given_back() == 2);
  // Freed by mistake while a call uses it: the pages stay the NIC's until that call is over.
  REQUIRE(machine.regions.release(memory).ok());
  CHECK(machine.given_back() == 4);
  CHECK(second->on(*machine.devices[0]) != nullptr);
}

TEST_CASE("one range that is larger than the limit is copied", "[rdma]") {
  Machine machine({.bytes = page});
  std::byte* const memory = machine.allocate(2 * page);
  CHECK(machine.holds(memory, page));
  CHECK_FALSE(machine.holds(memory, 2 * page));
  CHECK(machine.given_back() == 0);
}

TEST_CASE("a device that refuses makes a call copy, and is not asked again and again", "[rdma]") {
  const int failing = GENERATE(1, 2);
  CAPTURE(failing);
  Machine machine;
  std::byte* const memory = machine.allocate(2 * page);
  machine.fake.fail_call("reg_mr", failing);
  CHECK_FALSE(machine.holds(memory, page));
  CHECK(machine.given_back() == failing - 1);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(machine.holds(memory, page));
  CHECK(machine.registered() == failing);
  // With other memory it is.
  CHECK(machine.holds(memory + page, page));
  // What was given back may make room.
  std::byte* const other = machine.allocate(page);
  REQUIRE(machine.holds(other, page));
  REQUIRE(machine.regions.release(other).ok());
  CHECK(machine.holds(memory, page));
}

TEST_CASE("at a limit of the machine, keys that nobody uses make room", "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(2 * page);
  REQUIRE(machine.holds(memory, page));
  machine.fake.fail_call("reg_mr", 1);
  CHECK(machine.holds(memory + page, page));
  CHECK(machine.given_back() == 2);
}

TEST_CASE("a cache that ends gives all back, and memory may go before it or after it", "[rdma]") {
  Machine machine;
  std::byte* const memory = machine.allocate(page);
  REQUIRE(machine.holds(memory, page));
  machine.cache.reset();
  CHECK(machine.given_back() == 2);
  CHECK(machine.regions.release(memory).ok());
}

TEST_CASE("memory that the device may not write is copied, and costs no other key", "[rdma]") {
  Machine machine;
  if (!forks_copy_pinned_pages()) return;
  std::byte* const memory = machine.allocate(page);
  REQUIRE(machine.holds(memory, page));
  void* const read_only = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(read_only != MAP_FAILED);
  (void)machine.lasting->add({static_cast<std::byte*>(read_only), page});
  for (int i = 0; i < 3; ++i) CHECK_FALSE(machine.holds(read_only, page));
  CHECK(machine.given_back() == 0);
  CHECK(machine.holds(memory, page));
  CHECK(machine.registered() == 3);
  CHECK(munmap(read_only, page) == 0);
}

}  // namespace rdma_registration_test
