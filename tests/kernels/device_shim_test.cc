// The simulated device behind kernels/cuda/device.h (tests/support/host_device): it shows what a
// GPU may do to code that lacks a barrier, a release, an acquire, or a partner. Each case also runs
// with nothing missing.
#include "tests/support/catch.h"
#include "tests/support/host_device/host_device.h"

#include <array>

namespace device_shim_test {

using namespace gyre::tests;
namespace device = gyre::cuda::device;
using gyre::cuda::Bytes16;
using gyre::cuda::WaitingFor;

namespace {

constexpr std::uint64_t seeds = 200;

MachineOptions with_seed(std::uint64_t seed) {
  MachineOptions options;
  options.seed = seed;
  return options;
}

bool is_first() { return device::thread_index() == 0; }

struct Mailbox {
  alignas(128) std::uint64_t flag = 0;
  alignas(128) std::array<std::byte, 64> data{};
};

std::uint64_t read_word(const Mailbox& box, std::size_t at) {
  return device::load_8(box.data.data() + 8 * at);
}

// Sends 1, 2, 3, ... each eight times over one mailbox, and back; true if a wrong one is seen.
bool mail_goes_wrong(bool releases, bool acquires, const MachineOptions& options) {
  Mailbox there, back;
  bool wrong = false;
  const auto send = [&](std::uint64_t* flag, std::uint64_t value) {
    releases ? device::store_release(flag, value) : device::store_relaxed(flag, value);
  };
  const auto await = [&](const std::uint64_t* flag, std::uint64_t value) {
    while ((acquires ? device::load_acquire(flag) : device::load_relaxed(flag)) != value)
      device::pause(WaitingFor::data, 0);
  };
  const auto sender = [&] {
    if (!is_first()) return;
    for (std::uint64_t value = 1; value < 8; ++value) {
      for (std::size_t i = 0; i < 8; ++i) device::store_8(there.data.data() + 8 * i, value);
      send(&there.flag, value);
      await(&back.flag, value);
    }
  };
  const auto receiver = [&] {
    if (!is_first()) return;
    for (std::uint64_t value = 1; value < 8; ++value) {
      await(&there.flag, value);
      for (std::size_t i = 0; i < 8; ++i) wrong |= read_word(there, i) != value;
      send(&back.flag, value);
    }
  };
  const std::string report = run_grids({{0, 1, 32, sender}, {1, 1, 32, receiver}}, options);
  CHECK((report.empty() || report.find("a race") == 0));
  return wrong || !report.empty();
}

}  // namespace

TEST_CASE("a missing release is seen, and a missing acquire, by what is read or as a race") {
  for (bool watches : {false, true}) {
    std::uint64_t no_release = 0, no_acquire = 0, none_missing = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      MachineOptions options = with_seed(seed);
      options.watches_races = watches;
      no_release += mail_goes_wrong(false, true, options) ? 1 : 0;
      no_acquire += mail_goes_wrong(true, false, options) ? 1 : 0;
      none_missing += mail_goes_wrong(true, true, options) ? 1 : 0;
    }
    CHECK(no_release > (watches ? seeds - 1 : seeds / 2));
    CHECK(no_acquire > (watches ? seeds - 1 : seeds / 2));
    CHECK(none_missing == 0);
  }
}

TEST_CASE("a place that is written again before its reader gave it back is a race") {
  for (bool gives_back : {true, false}) {
    std::array<std::byte, 8> place{};
    std::uint64_t full = 0, empty = 0;
    const auto writer = [&] {
      if (!is_first()) return;
      device::store_8(place.data(), 1);
      device::store_release(&full, 1);
      while ((gives_back ? device::load_acquire(&empty) : device::load_relaxed(&empty)) == 0)
        device::pause(WaitingFor::credit, 0);
      device::store_8(place.data(), 2);
    };
    const auto reader = [&] {
      if (!is_first()) return;
      while (device::load_acquire(&full) == 0) device::pause(WaitingFor::data, 0);
      CHECK(device::load_8(place.data()) == 1);
      device::store_release(&empty, 1);
    };
    const std::string report = run_grids({{0, 1, 32, writer}, {1, 1, 32, reader}}, {});
    CHECK((report.find("a race: rank 0 block 0 thread 0 writes") == 0) == !gives_back);
  }
}

TEST_CASE("memory that the host takes back before its readers are known to be done is a race") {
  for (bool acquires : {true, false}) {
    std::array<std::byte, 8> place{};
    std::uint64_t lent = 0, read = 0;
    const auto lender = [&] {
      if (!is_first()) return;
      device::store_release(&lent, 1);
      while ((acquires ? device::load_acquire(&read) : device::load_relaxed(&read)) == 0)
        device::pause(WaitingFor::drain, 0);
    };
    const auto reader = [&] {
      if (!is_first()) return;
      while (device::load_acquire(&lent) == 0) device::pause(WaitingFor::grant, 0);
      CHECK(device::load_8(place.data()) == 0);
      device::store_release(&read, 1);
    };
    const auto take_back = [&] { host_fills(place.data(), place.size(), std::byte{1}); };
    const std::string report = run_grids({{0, 2, 32, lender, take_back}, {1, 1, 32, reader}}, {});
    CHECK((report.find("a race: rank 0") == 0) == !acquires);
    CHECK(report.empty() == acquires);
  }
}

TEST_CASE("an access that is wider than its address allows is seen") {
  for (std::size_t at : {0, 1, 2, 4, 8}) {
    alignas(16) std::array<std::byte, 32> place{};
    const auto kernel = [&] { device::load_8(place.data() + at); };
    const std::string report = run_grids({{0, 1, 32, kernel}}, {});
    CHECK((report.find("a misaligned access: rank 0 block 0") == 0) == (at % 8 != 0));
  }
}

TEST_CASE("parts of a line that do not lie in order are seen") {
  for (std::size_t part : {16, 8}) {
    alignas(128) std::array<std::byte, 128> line{};
    const auto kernel = [&] {
      const std::uint32_t thread = device::thread_index();
      device::store_line_part(thread < 8 ? line.data() + part * thread : nullptr, {9, 9});
    };
    const std::string report = run_grids({{0, 1, 32, kernel}}, {});
    CHECK((report.find("a torn line: rank 0") == 0) == (part != 16));
  }
}

TEST_CASE("a missing barrier is seen") {
  for (bool has_barrier : {true, false}) {
    std::uint64_t wrong = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const auto kernel = [&] {
        auto& word = device::block_memory<std::uint32_t>();
        if (is_first()) word = 7;
        if (has_barrier) device::block_barrier();
        if (word != 7) ++wrong;
      };
      CHECK(run_grids({{0, 1, 64, kernel}}, with_seed(seed)) == "");
    }
    CHECK((wrong > 0) == !has_barrier);
  }
}

TEST_CASE("what a thread stores is its block's after a barrier, and others' after a release") {
  for (bool has_barrier : {true, false}) {
    std::uint64_t wrong = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      Mailbox box;
      const auto sender = [&] {
        if (device::thread_index() < 8)
          device::store_8(box.data.data() + 8 * device::thread_index(), 5);
        if (has_barrier) device::block_barrier();
        if (is_first()) device::store_release(&box.flag, 1);
      };
      const auto receiver = [&] {
        if (is_first())
          while (device::load_acquire(&box.flag) != 1) device::pause(WaitingFor::data, 0);
        device::block_barrier();
        if (device::thread_index() < 8 && read_word(box, device::thread_index()) != 5) ++wrong;
      };
      const std::string report =
          run_grids({{0, 1, 32, sender}, {1, 1, 32, receiver}}, with_seed(seed));
      CHECK((report.empty() || report.find("a race") == 0));
      if (!report.empty()) ++wrong;
    }
    CHECK((wrong > 0) == !has_barrier);
  }
}

TEST_CASE("blocks that wait for each other are a deadlock, with what each waits for") {
  std::uint64_t flags[2] = {};
  const auto wait = [&](std::size_t mine, WaitingFor what) {
    return [&flags, mine, what] {
      while (device::load_acquire(&flags[1 - mine]) == 0)
        device::pause(what, static_cast<std::uint32_t>(5 + mine));
      device::store_release(&flags[mine], 1);
    };
  };
  const std::string report = run_grids(
      {{0, 1, 32, wait(0, WaitingFor::credit)}, {1, 1, 32, wait(1, WaitingFor::data)}}, {});
  INFO(report);
  CHECK(report.find("a full turn of all threads without progress") == 0);
  CHECK(report.find("rank 0 block 0 waits for credit, link 5: thread 0 and 31 more") !=
        std::string::npos);
  CHECK(report.find("rank 1 block 0 waits for data, link 6") != std::string::npos);
}

TEST_CASE("a barrier that not all threads reach is a deadlock") {
  const auto kernel = [] {
    if (device::thread_index() != 3) device::block_barrier();
  };
  const std::string report = run_grids({{4, 1, 32, kernel}}, {});
  CHECK(report.find("rank 4 block 0 stands at a barrier: thread 0 and 30 more") !=
        std::string::npos);
}

namespace {

// Eight threads have a part each.
Bytes16 line_part(const std::array<std::byte, 128>& line, std::uint32_t thread) {
  return device::load_line_part(thread < 8 ? line.data() + std::size_t{16} * thread : nullptr);
}

}  // namespace

TEST_CASE("a load that finds a line's flag may have older parts, and the next one has not") {
  std::uint64_t old_at_first = 0, old_after = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    alignas(128) std::array<std::byte, 128> line{};
    const auto sender = [&] {
      const std::uint32_t thread = device::thread_index();
      device::store_line_part(thread < 8 ? line.data() + std::size_t{16} * thread : nullptr,
                              {9, 9});
    };
    const auto receiver = [&] {
      const std::uint32_t thread = device::thread_index();
      while (true) {
        const Bytes16 got = line_part(line, thread);
        const bool here = device::warp_any(thread == 7 && got.high == 9);
        const Bytes16 after = line_part(line, thread);
        old_at_first += here && thread < 7 && got.low != 9;
        old_after += here && thread < 8 && after.low != 9;
        if (here) return;
        device::pause(WaitingFor::data, 0);
      }
    };
    CHECK(run_grids({{0, 1, 32, sender}, {1, 1, 32, receiver}}, with_seed(seed)) == "");
  }
  CHECK(old_at_first > seeds);
  CHECK(old_after == 0);
}

TEST_CASE("a line arrives at once where lines are kept whole, and torn where not") {
  for (bool whole : {true, false}) {
    std::uint64_t torn = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      alignas(128) std::array<std::byte, 128> line{};
      const std::uint32_t part = 16;
      const auto sender = [&] {
        const std::uint32_t thread = device::thread_index();
        device::store_line_part(thread < 8 ? line.data() + part * thread : nullptr, {9, 9});
      };
      const auto receiver = [&] {
        const std::uint32_t thread = device::thread_index();
        while (true) {
          const Bytes16 got = line_part(line, thread);
          const bool here = device::warp_any(thread == 7 && got.high == 9);
          const Bytes16 after = line_part(line, thread);
          if (here && thread < 8 && after.low != 9) ++torn;
          if (here) return;
          device::pause(WaitingFor::data, 0);
        }
      };
      MachineOptions options = with_seed(seed);
      options.whole_lines = whole;
      CHECK(run_grids({{0, 1, 32, sender}, {1, 1, 32, receiver}}, options) == "");
    }
    CHECK((torn > 0) == !whole);
  }
}

TEST_CASE("a seed gives the same run each time, and another seed another") {
  const auto order_of = [](std::uint64_t seed) {
    std::vector<std::uint32_t> order;
    const auto kernel = [&] {
      for (int i = 0; i < 3; ++i) {
        order.push_back(device::thread_index());
        let_others_run();
      }
    };
    CHECK(run_grids({{0, 2, 32, kernel}}, with_seed(seed)) == "");
    return order;
  };
  CHECK(order_of(1) == order_of(1));
  CHECK(order_of(1) != order_of(2));
}

TEST_CASE("counters that blocks add to lose nothing") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::uint32_t word = 0;
    const auto kernel = [&] { device::add_acquire_release(&word, 1); };
    CHECK(run_grids({{0, 4, 64, kernel}}, with_seed(seed)) == "");
    CHECK(word == 256);
  }
}

}  // namespace device_shim_test
