// lib/base/handle_table.h: a stale, made-up or foreign handle finds nothing; a pin keeps its object
// alive. lib/call/pre_mul_sum_ops.h: operations by number. Both: what happens after the last
// number.
#include "lib/base/handle_table.h"

#include "lib/call/pre_mul_sum_ops.h"
#include "tests/support/base/denied_call.h"
#include "tests/support/catch.h"

#include <cerrno>
#include <climits>
#include <cstddef>
#include <set>
#include <sys/syscall.h>
#include <thread>

namespace handle_table_test {

using namespace gyre;

namespace {

struct Counted {
  explicit Counted(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~Counted() { --alive_; }
  std::atomic<int>& alive_;
};

// Threads enter whatever is there, while this one replaces it. How many objects are left over.
int left_over_after(HandleTable<Counted>& table, int rounds) {
  std::atomic<int> alive{0}, inside{0};
  std::atomic<std::uint64_t> shared{table.insert(std::make_unique<Counted>(alive))};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!over) {
        if (const auto entry = table.enter(shared.load())) {
          if (entry->alive_ < 1) std::abort();
          ++inside;
        }
      }
    });
  for (int round = 0; round < rounds || inside == 0; ++round) {
    const std::uint64_t handle = shared.load();
    const std::uint64_t next = table.insert(std::make_unique<Counted>(alive));
    // Nobody has this handle yet, so nobody is in for longer than a look takes.
    if (!table.occupy(next)) std::abort();
    table.leave(next);
    shared = next;
    if (!table.remove(handle)) std::abort();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  if (!table.remove(shared)) std::abort();
  return alive;
}

}  // namespace

TEST_CASE("a handle finds its object until it is removed, and never another one", "[comm]") {
  std::atomic<int> alive{0};
  HandleTable<Counted> table(0xC1, 77);
  const std::uint64_t first = table.insert(std::make_unique<Counted>(alive));
  CHECK(table.pin(first));
  CHECK(table.remove(first));
  CHECK(alive == 0);
  CHECK_FALSE(table.pin(first));
  CHECK_FALSE(table.remove(first));
  const std::uint64_t second = table.insert(std::make_unique<Counted>(alive));
  CHECK(second != first);  // the same slot, another generation
  CHECK_FALSE(table.pin(first));
  CHECK(table.pin(second));
  CHECK(table.remove(second));
}

TEST_CASE("made-up handles find nothing", "[comm]") {
  std::atomic<int> alive{0};
  HandleTable<Counted> table(0xC1, 77), other(0xC2, 77);
  const std::uint64_t handle = table.insert(std::make_unique<Counted>(alive));
  const std::uint64_t kind = std::uint64_t{0xC1} << 56;
  const std::vector<std::uint64_t> made_up = {0,
                                              1,
                                              ~std::uint64_t{0},
                                              handle ^ 1,
                                              handle + (1U << 24),
                                              handle ^ kind,
                                              kind,
                                              kind | 0xffffff};
  for (const std::uint64_t wrong : made_up) CHECK_FALSE(table.pin(wrong));
  CHECK_FALSE(other.pin(handle));
  CHECK(table.remove(handle));
}

TEST_CASE("a pinned object outlives its removal", "[comm]") {
  std::atomic<int> alive{0};
  HandleTable<Counted> table(0xC1, 1);
  const std::uint64_t handle = table.insert(std::make_unique<Counted>(alive));
  {
    const auto pin = table.pin(handle);
    CHECK(table.remove(handle));
    CHECK(alive == 1);
    CHECK_FALSE(table.pin(handle));
  }
  CHECK(alive == 0);
}

TEST_CASE("threads that pin, remove and insert at once leave nothing alive", "[comm]") {
  std::atomic<int> alive{0};
  HandleTable<Counted> table(0xC1, 1);
  std::atomic<std::uint64_t> shared{table.insert(std::make_unique<Counted>(alive))};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5000; ++round) {
        const std::uint64_t handle = shared.load();
        if (i == 0) {
          shared = table.insert(std::make_unique<Counted>(alive));
          table.remove(handle);
        } else if (const auto pin = table.pin(handle)) {
          if (pin->alive_ < 1) std::abort();
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(table.remove(shared));
  CHECK(alive == 0);
}

TEST_CASE("one thread at a time enters an object, and another handle's not at all", "[comm]") {
  std::atomic<int> alive{0};
  HandleTable<Counted> table(0xC1, 1);
  const std::uint64_t handle = table.insert(std::make_unique<Counted>(alive));
  {
    const auto entry = table.enter(handle);
    REQUIRE(entry);
    CHECK(entry->alive_ == 1);
    CHECK_FALSE(table.enter(handle));
    CHECK_FALSE(table.occupy(handle));
    CHECK(table.pin(handle));
  }
  CHECK(table.enter(handle));
  CHECK(table.occupy(handle));
  CHECK_FALSE(table.enter(handle));
  table.leave(handle);
  CHECK(table.remove(handle));
  CHECK_FALSE(table.enter(handle));
  const std::uint64_t next = table.insert(std::make_unique<Counted>(alive));
  CHECK_FALSE(table.enter(handle));
  CHECK(table.enter(next));
  CHECK(table.remove(next));
  CHECK(alive == 0);
}

TEST_CASE("an entered object outlives its removal, and goes with the last who holds it", "[comm]") {
  std::atomic<int> alive{0};
  HandleTable<Counted> table(0xC1, 1);
  const std::uint64_t handle = table.insert(std::make_unique<Counted>(alive));
  {
    const auto entry = table.enter(handle);
    CHECK(table.remove(handle));
    CHECK(alive == 1);
    CHECK_FALSE(table.pin(handle));
  }
  CHECK(alive == 0);
  const std::uint64_t other = table.insert(std::make_unique<Counted>(alive));
  {
    const auto pin = table.pin(other);
    {
      const auto entry = table.enter(other);
      CHECK(table.remove(other));
    }
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

TEST_CASE("threads that enter, remove and insert at once leave nothing alive", "[comm]") {
  HandleTable<Counted> table(0xC1, 1);
  CHECK(left_over_after(table, 20000) == 0);
}

TEST_CASE("nothing stays alive where the kernel refuses a fence for all threads", "[comm]") {
  int left_over = -1, left_over_later = -1;
  bool has_fence = true, had_fence = false, is_denied = false;
  std::thread([&] {
    HandleTable<Counted> earlier(0xC1, 1);
    had_fence = earlier.has_process_fence();
    is_denied = tests::deny_call(SYS_membarrier);
    HandleTable<Counted> table(0xC1, 1);
    has_fence = table.has_process_fence();
    left_over = left_over_after(table, 20000);
    left_over_later = left_over_after(earlier, 200);
  }).join();
  REQUIRE(is_denied);
  CHECK(has_fence == false);
  CHECK(left_over == 0);
  CAPTURE(had_fence);
  CHECK(left_over_later == 0);
}

TEST_CASE("handles stay apart when their generations turn", "[comm]") {
  HandleTable<int> table(0xC1, 0xffff'fff9);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t handle = table.insert(std::make_unique<int>(i));
    CHECK(handle >> 56 == 0xC1);
    CHECK((handle >> 24 & 0xffff'ffff) != 0);
    for (const std::uint64_t stale : seen) CHECK_FALSE(table.pin(stale));
    CHECK(seen.insert(handle).second);
    {
      const auto pin = table.pin(handle);
      REQUIRE(pin);
      CHECK(*pin == i);
    }
    CHECK(table.remove(handle));
  }
}

TEST_CASE("made ops begin again after the last number, past those in use", "[comm]") {
  comm::PreMulSumOps ops(INT_MAX - 1);
  const int first = *ops.make(ElementType::float32, 11);
  const int last = *ops.make(ElementType::float32, 12);
  CHECK(first == INT_MAX - 1);
  CHECK(last == INT_MAX);
  const int third = *ops.make(ElementType::int32, 13);
  CHECK(third == comm::PreMulSumOps::first);
  CHECK(*ops.find(last, ElementType::float32) == 12);
  CHECK(*ops.find(third, ElementType::int32) == 13);
  CHECK_FALSE(ops.find(third, ElementType::float32).ok());
  CHECK(ops.destroy(first).ok());
  CHECK_FALSE(ops.destroy(first).ok());
  CHECK_FALSE(ops.find(first, ElementType::float32).ok());

  comm::PreMulSumOps crowded(INT_MAX);
  CHECK(*crowded.make(ElementType::int8, 1) == INT_MAX);
  CHECK(*crowded.make(ElementType::int8, 2) == comm::PreMulSumOps::first);
  CHECK(*crowded.make(ElementType::int8, 3) == comm::PreMulSumOps::first + 1);
}

TEST_CASE("no more than 2^20 ops are made, and a free number is found among them", "[comm]") {
  comm::PreMulSumOps ops(INT_MAX - 2);
  for (std::size_t i = 0; i < comm::PreMulSumOps::most; ++i)
    REQUIRE(ops.make(ElementType::int8, i).ok());
  CHECK(ops.make(ElementType::int8, 0).status().code() == Code::SystemError);
  const int free = comm::PreMulSumOps::first + 1000;
  CHECK(ops.destroy(free).ok());
  CHECK(ops.make(ElementType::int8, 7).ok());
}

}  // namespace handle_table_test
