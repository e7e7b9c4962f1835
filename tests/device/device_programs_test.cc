// Random programs over the fake driver at its harshest. There are two teams of two threads; each
// thread is a rank. Both teams make communicators, call on them, abort some and destroy them, side
// by side. The kernels of one team must never block the other team's driver calls for ever. A seed
// gives a program.
#include "tests/support/device/device_ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>

namespace device_programs_test {

using namespace gyre;
using namespace gyre::tests;
namespace cu = gyre::loaded::cu;

namespace {

constexpr int teams = 2, ranks_each = 2, max_together = 2;

enum class Act { begin, call, burst, exchange, synchronize, abort, destroy };

struct Step {
  Act act;
  std::size_t communicator = 0;
};

struct Planned {
  gyreUniqueId id{};
  std::size_t count = 0;   // elements
  int sums = 0;            // all-reduces on it
  bool is_doomed = false;  // somebody aborts it
};

// What both ranks of a team do, each at its own pace.
struct TeamProgram {
  std::vector<Step> steps;
  std::vector<Planned> communicators;
};

TeamProgram draw_program(std::mt19937_64& random) {
  const auto below = [&](std::size_t most) { return std::size_t{random() % most}; };
  TeamProgram program;
  std::vector<std::size_t> living;
  const auto end_one = [&](std::size_t which) {
    Planned& ends = program.communicators[living[which]];
    ends.is_doomed = below(3) == 0;
    program.steps.push_back({ends.is_doomed ? Act::abort : Act::destroy, living[which]});
    living.erase(living.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (int i = 0; i < 14; ++i) {
    const std::size_t dice = below(10);
    if (living.empty() || (dice < 2 && living.size() < max_together)) {
      living.push_back(program.communicators.size());
      program.communicators.emplace_back().count = 1 + below(3000);
      program.steps.push_back({Act::begin, living.back()});
      continue;
    }
    const std::size_t which = below(living.size());
    if (dice < 4) {
      end_one(which);
      continue;
    }
    const Act act = dice == 4   ? Act::synchronize
                    : dice == 5 ? Act::exchange
                    : dice == 6 ? Act::burst
                                : Act::call;
    if (act == Act::call) ++program.communicators[living[which]].sums;
    program.steps.push_back({act, living[which]});
  }
  while (!living.empty()) end_one(0);
  return program;
}

// One rank of a team, in a thread of its own.
class Rank {
 public:
  Rank(const OnFake& on, const TeamProgram& program, int rank, int device)
      : driver_(*on.driver), program_(program), rank_(rank), device_(device) {
    REQUIRE(driver_.primary_retain(&context_, device) == cu::success);
    const loaded::CurrentContext scope(driver_, context_);
    REQUIRE(driver_.stream_create(&stream_, cu::stream_non_blocking) == cu::success);
    for (const Planned& one : program.communicators) {
      loaded::CuDevicePointer memory = 0;
      REQUIRE(driver_.allocate(&memory, 2 * one.count * sizeof(std::uint32_t)) == cu::success);
      data_.push_back(reinterpret_cast<std::uint32_t*>(memory));  // the host's as well
      for (std::size_t i = 0; i < 2 * one.count; ++i)
        data_.back()[i] = static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(rank);
    }
    comms_.resize(program.communicators.size());
  }
  ~Rank() {
    const loaded::CurrentContext scope(driver_, context_);
    for (std::uint32_t* one : data_)
      (void)driver_.free(reinterpret_cast<loaded::CuDevicePointer>(one));
    (void)driver_.stream_destroy(stream_);
    (void)driver_.primary_release(device_);
  }

  void run(Complaints& complaints) {
    const loaded::CurrentContext scope(driver_, context_);
    for (const Step& step : program_.steps) {
      const bool good = take(step) == gyreSuccess;
      // Of one that somebody aborts, calls may end in any way, but end they must.
      if (!good && !program_.communicators[step.communicator].is_doomed)
        return complaints.add(fmt::format("act {} on communicator {} of rank {}: {}",
                                          static_cast<int>(step.act), step.communicator, rank_,
                                          last_error()));
    }
    if (driver_.stream_synchronize(stream_) != cu::success)
      return complaints.add("a stream was not done");
    for (std::size_t i = 0; i < data_.size(); ++i)
      complaints.expect(is_right(i), fmt::format("communicator {} has summed wrongly", i));
  }

 private:
  gyreResult_t take(const Step& step) {
    const Planned& of = program_.communicators[step.communicator];
    gyreComm_t& comm = comms_[step.communicator];
    auto* const stream = reinterpret_cast<gyreStream_t>(stream_);
    std::uint32_t* const own = data_[step.communicator];
    switch (step.act) {
      case Act::begin: {
        gyreConfig_t config = device_config(device_);
        config.maxCTAs = 1;
        config.timeoutMs = 30000;
        return gyreCommInitRankConfig(&comm, ranks_each, of.id, rank_, &config);
      }
      case Act::call:
        return gyreAllReduce(own, own, of.count, gyreUint32, gyreSum, comm, stream);
      case Act::burst:
        (void)gyreGroupStart();
        for (int i = 0; i < 5; ++i)
          (void)gyreBroadcast(own + of.count, own + of.count, 1 + of.count / 5, gyreUint32, i % 2,
                              comm, stream);
        return gyreGroupEnd();
      case Act::exchange:
        (void)gyreGroupStart();
        (void)gyreSend(own + of.count, of.count / 2, gyreUint32, 1 - rank_, comm, stream);
        (void)gyreRecv(own + of.count + of.count / 2, of.count / 2, gyreUint32, 1 - rank_, comm,
                       stream);
        return gyreGroupEnd();
      case Act::synchronize:
        return driver_.stream_synchronize(stream_) == cu::success ? gyreSuccess : gyreSystemError;
      case Act::abort:
        return gyreCommAbort(comm);
      case Act::destroy:
        return gyreCommDestroy(comm);
    }
    return gyreInternalError;
  }

  // Sums double after the first.
  bool is_right(std::size_t index) const {
    const Planned& of = program_.communicators[index];
    if (of.is_doomed || of.sums == 0) return true;
    for (std::size_t i = 0; i < of.count; ++i)
      if (data_[index][i] != (2 * static_cast<std::uint32_t>(i) + 1) << (of.sums - 1)) return false;
    return true;
  }

  const loaded::CudaDriver& driver_;
  const TeamProgram& program_;
  const int rank_, device_;
  loaded::CuContext context_ = nullptr;
  loaded::CuStream stream_ = nullptr;
  std::vector<std::uint32_t*> data_;
  std::vector<gyreComm_t> comms_;
};

// All on one GPU, or a GPU for each team, or for each rank of a team.
int device_of(std::uint64_t seed, int team, int rank) {
  return seed % 3 == 0 ? 0 : seed % 3 == 1 ? team : rank;
}

void run_program(std::uint64_t seed) {
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FakeCudaOptions options{.devices = 2, .seed = seed};
  options.harsh = true;
  OnFake on(options);
  std::array<TeamProgram, teams> programs;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int team = 0; team < teams; ++team) {
    TeamProgram& program = programs[static_cast<std::size_t>(team)];
    program = draw_program(random);
    for (Planned& one : program.communicators) REQUIRE(gyreGetUniqueId(&one.id) == gyreSuccess);
    for (int rank = 0; rank < ranks_each; ++rank)
      ranks.push_back(std::make_unique<Rank>(on, program, rank, device_of(seed, team, rank)));
  }
  Complaints complaints;
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { rank->run(complaints); });
  for (std::thread& thread : threads) thread.join();
  CHECK(complaints.all() == "");
  CHECK(on.fake.failure() == "");
  CHECK(on.fake.synchronising_shown() == "");
  ranks.clear();
}

}  // namespace

TEST_CASE("threads make, use, abort and destroy communicators beside each other's kernels",
          "[device]") {
  for (std::uint64_t i = 0; i < 12; ++i) run_program(rng_seed() + i);
}

TEST_CASE("a thousand such programs end", "[device][.soak]") {
  for (std::uint64_t i = 0; i < 1000; ++i) run_program(10000ULL * rng_seed() + i);
}

}  // namespace device_programs_test
