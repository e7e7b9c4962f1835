// kernels/cuda on the simulated device: every collective and algorithm, protocol, type and
// operation gives the bits of the host's interpreter, under a seeded scheduler and with delayed
// stores. The default run takes a covering array and some dozens of seeds. "[.soak]" takes the
// whole product of collective, protocol, type, operation, ranks and channels, and a thousand seeds
// of a few schedules.
#include "tests/support/base/slowness.h"
#include "tests/support/catch.h"
#include "tests/support/kernels/device_cases.h"
#include "tests/support/kernels/device_job.h"

#include <functional>
#include <random>

namespace device_test {

using namespace gyre;
using namespace gyre::tests;
using cuda::DeviceProtocol;
using cuda::Outcome;
using cuda::WaitingFor;
using plan::Collective;

namespace {

// Calls that follow one another on the same rings, each under another seed and kind of machine.
void check(const DeviceCase& one, std::uint64_t first_seed, std::uint64_t seeds) {
  DeviceJob job(one);
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    MachineOptions options;
    options.seed = seed;
    options.delayed_stores = seed % 4 != 3;
    options.stale_loads = seed % 4 != 2;
    const std::string wrong = job.run(options);
    if (wrong.empty()) continue;
    FAIL_CHECK(one.shown() << ", seed " << seed << ": " << wrong);
    return;
  }
}

void check_all(std::uint64_t seeds) {
  std::uint64_t seed = rng_seed();
  for (const DeviceCase& one : covering_cases(rng_seed())) {
    check(one, seed, seeds);
    seed += seeds;
  }
}

void check_seeds(std::uint64_t seeds) {
  for (const Way& way : ways)
    for (const Schedule& schedule :
         {Schedule{"ring", Collective::all_reduce}, Schedule{"tree", Collective::all_reduce},
          Schedule{"twoshot", Collective::all_reduce}, Schedule{"bruck", Collective::all_to_all}}) {
      DeviceCase one;
      one.algorithm = schedule.algorithm;
      one.collective = schedule.collective;
      one.ranks = 3;
      one.channels = 2;
      one.protocol = way.protocol;
      one.direct = way.direct;
      one.processes = way.processes;
      one.count = schedule.collective == Collective::all_to_all ? 130 : 407;
      check(one, rng_seed() * 1000, seeds);
    }
}

// Each case of the product under a seed of its own, which draws the rest of the case too.
void check_product() {
  const std::vector<Schedule> schedules = all_schedules();
  const std::vector<Row> rows =
      whole_product({plan::collective_count, std::size(ways), std::size(rank_counts),
                     std::size(channel_counts), element_type_count, reduce_op_count});
  std::uint64_t seed = std::uint64_t{rng_seed()} << 32;
  for (const Row& row : rows) {
    DeviceCase one;
    one.collective = static_cast<Collective>(row[0]);
    one.protocol = ways[row[1]].protocol;
    one.direct = ways[row[1]].direct;
    one.processes = ways[row[1]].processes;
    one.ranks = rank_counts[row[2]];
    one.channels = channel_counts[row[3]];
    one.type = static_cast<ElementType>(row[4]);
    one.op = static_cast<ReduceOp>(row[5]);
    if (!exists(one.collective, one.type, one.op)) continue;
    std::mt19937_64 random(++seed);
    Schedule schedule;
    do schedule = schedules[random() % schedules.size()];
    while (schedule.collective != one.collective);
    one.algorithm = schedule.algorithm;
    std::size_t at[std::size(Draw::sizes)];
    for (std::size_t i = 0; i < std::size(at); ++i) at[i] = random() % Draw::sizes[i];
    check(drawn(one, {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]}), seed, 1);
  }
}

DeviceCase pair_of_ranks(const Way& way) {
  DeviceCase one;
  one.protocol = way.protocol;
  one.direct = way.direct;
  one.processes = way.processes;
  one.count = 3001;
  return one;
}

}  // namespace

TEST_CASE("every schedule, protocol, type and operation gives the host's bits") {
  check_all(slowness == 1 ? 3 : 1);
}
TEST_CASE("a few schedules give the host's bits under dozens of seeds") {
  check_seeds(24 / slowness);
}
TEST_CASE("every case of the product gives the host's bits", "[.soak]") { check_product(); }
TEST_CASE("a few schedules give the host's bits under a thousand seeds", "[.soak]") {
  check_seeds(1000);
}

TEST_CASE("kernels that reach no other's memory give the host's bits over relays") {
  for (const int ranks : {2, 3, 4})
    for (const Schedule& schedule : all_schedules()) {
      DeviceCase one;
      one.algorithm = schedule.algorithm;
      one.collective = schedule.collective;
      one.ranks = ranks;
      one.relayed = true;
      one.channels = ranks == 3 ? 2 : 1;
      one.count = 701;
      one.root = ranks / 2;
      check(one, rng_seed() * 1000, 4);
    }
}

TEST_CASE("a switch that sums and spreads gives the host's bits, wherever it may") {
  struct Expected {
    Collective collective;
    ElementType type;
    ReduceOp op;
    bool uses_switch;
  };
  const Expected expected = GENERATE(values<Expected>({
      {Collective::all_reduce, ElementType::float32, ReduceOp::sum, true},
      {Collective::all_reduce, ElementType::float16, ReduceOp::sum, true},
      {Collective::all_reduce, ElementType::bfloat16, ReduceOp::sum, true},
      {Collective::all_reduce, ElementType::float32, ReduceOp::avg, true},
      {Collective::reduce_scatter, ElementType::float32, ReduceOp::avg, true},
      {Collective::reduce_scatter, ElementType::bfloat16, ReduceOp::sum, true},
      // Read where it lies; rounded twice, scaled, no sum, no type of the switch's.
      {Collective::all_gather, ElementType::int8, ReduceOp::sum, false},
      {Collective::reduce_scatter, ElementType::bfloat16, ReduceOp::avg, false},
      {Collective::reduce_scatter, ElementType::float32, ReduceOp::pre_mul_sum, false},
      {Collective::reduce_scatter, ElementType::float32, ReduceOp::max, false},
      {Collective::reduce_scatter, ElementType::int32, ReduceOp::sum, false},
      {Collective::reduce_scatter, ElementType::float8_e4m3, ReduceOp::sum, false},
  }));
  for (const int ranks : {2, 3, 8})
    for (const std::uint64_t shift : {0, 8})
      for (const bool in_place : {false, true}) {
        DeviceCase one;
        one.algorithm = "twoshot";
        one.collective = expected.collective;
        one.type = expected.type;
        one.op = expected.op;
        one.ranks = ranks;
        one.direct = one.multicast = true;
        one.in_place = in_place;
        one.channels = shift == 8 ? 2 : 1;
        one.count = 1001 + static_cast<std::uint64_t>(ranks);
        one.shift = shift;
        one.piece_bytes = 368;
        const bool spoils_alignment = expected.collective != Collective::all_reduce && in_place;
        check(one, rng_seed(), 2);
        INFO(one.shown());
        if (!spoils_alignment) CHECK((multicast_accesses() > 0) == expected.uses_switch);
      }
}

TEST_CASE("a switch sums, and what it may not spread goes out link by link") {
  DeviceCase one;
  one.algorithm = "twoshot";
  one.ranks = 3;
  one.direct = one.multicast = true;
  one.processes = 2;
  one.count = 610;
  check(one, rng_seed(), 12);  // some of the outputs are not lent
  CHECK(multicast_accesses() > 0);
}

TEST_CASE("a switch is not asked for what is not lent, or does not lead to all") {
  for (const std::string_view algorithm : {"ring", "twoshot"}) {
    DeviceCase one;
    one.algorithm = algorithm;
    one.ranks = 4;
    one.count = 1000;
    one.multicast = true;
    one.direct = algorithm == "ring";
    check(one, rng_seed(), 3);
    CHECK(multicast_accesses() == 0);
  }
}

TEST_CASE("credit of lines goes back by quarters of a ring, and when a call ends") {
  CHECK(told_too_often(DeviceProtocol::ll) == "");
  CHECK(told_too_often(DeviceProtocol::ll128) == "");
}

TEST_CASE("a rank that is missing is a deadlock that names who waits for what") {
  for (const Way& way : ways) {
    DeviceJob job(pair_of_ranks(way));
    job.begin();
    const std::string report = run_grids({job.grids()[0]}, {});
    INFO(report);
    CHECK(report.find("without progress") != std::string::npos);
    CHECK(report.find("rank 0 block 0 waits for ") != std::string::npos);
  }
}

TEST_CASE("an abort ends every kernel, and the status names what it waited for") {
  for (const Way& way : ways)
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      DeviceJob job(pair_of_ranks(way));
      job.begin();
      MachineOptions options;
      options.seed = seed;
      CHECK(run_grids({job.grids()[0], job.aborter(1, 2000)}, options) == "");
      CHECK(job.status(0).outcome == Outcome::aborted);
      const WaitingFor what = job.status(0).what;
      CHECK((what == WaitingFor::data || what == WaitingFor::grant));
      CHECK(job.status(0).block == 0);
    }
}

// What it has sent may be on its way: a relay reads it there.
TEST_CASE("when a kernel has given up, a later one writes over nothing that it sent") {
  for (const Way& way : ways) {
    DeviceJob job(pair_of_ranks(way));
    job.begin();
    REQUIRE(run_grids({job.grids()[0], job.aborter(1, 2000)}, {}) == "");
    REQUIRE(job.status(0).outcome == Outcome::aborted);
    const cuda::LaneCall& call = job.launches()[0];
    const std::byte* const ring = job.launches()[0].lanes[0].send[0].ring;
    const std::vector<std::byte> sent(ring, ring + job.ring_bytes());
    std::fill_n(const_cast<std::byte*>(call.input), call.input_bytes, std::byte{0xee});
    const std::vector<std::byte> output(call.output, call.output + call.output_bytes);
    CHECK(run_grids({job.grids()[0]}, {}) == "");
    CHECK(std::equal(sent.begin(), sent.end(), ring));
    CHECK(std::equal(output.begin(), output.end(), call.output));
  }
}

TEST_CASE("what a kernel says that gives up is whole when it is told") {
  for (const Way& way : ways)
    for (std::uint64_t seed = 1; seed < 40; ++seed) {
      DeviceJob job(pair_of_ranks(way));
      job.begin();
      MachineOptions options;
      options.seed = seed;
      CHECK(run_grids({job.grids()[0], job.aborter(1, 2000), job.listener(2, 0)}, options) == "");
      INFO("seed " << seed);
      CHECK(job.heard().outcome == Outcome::aborted);
      const WaitingFor what = job.heard().what;
      CHECK((what == WaitingFor::data || what == WaitingFor::grant));
      CHECK(job.heard().peer == 1);
    }
}

TEST_CASE("a wait that takes too long ends the kernel") {
  for (const Way& way : ways) {
    DeviceJob job(pair_of_ranks(way));
    job.begin();
    for (auto& launch : job.launches()) launch.patience_ns = 20'000;
    Grid others{1, 1, 32, [&] {
                  if (cuda::device::thread_index() != 0) return;
                  for (int i = 0; i < 60'000; ++i) let_others_run();
                }};
    CHECK(run_grids({job.grids()[0], others}, {}) == "");
    CHECK(job.status(0).outcome == Outcome::late);
  }
}

TEST_CASE("ranks that call different things stop, and no wrong data is taken") {
  for (const Way& way : ways) {
    DeviceJob job(pair_of_ranks(way));
    REQUIRE(job.run({}) == "");
    job.begin();
    job.launches()[1].signature += 1;
    auto grids = job.grids();
    grids.push_back(job.aborter(2, 5000));
    CHECK(run_grids(grids, {}) == "");
    const bool either =
        job.status(0).outcome == Outcome::mismatch || job.status(1).outcome == Outcome::mismatch;
    CHECK(either);
  }
}

namespace {

// What rank 1's process has opened of rank 0, and what is wrong with it.
using Spoil = void (*)(cuda::DeviceRegion&);
const Spoil spoils[] = {
    [](cuda::DeviceRegion& region) { region = {}; },
    [](cuda::DeviceRegion& region) { region.number += cuda::max_regions; },
    [](cuda::DeviceRegion& region) { region.bytes = 300; },
    [](cuda::DeviceRegion& region) { region.begin = 0; },
};

// Rank 0 lends beyond its region, or one that it never had.
using Lie = void (*)(cuda::DevicePlace&);
const Lie lies[] = {
    [](cuda::DevicePlace& place) { place.offset += 1 << 20; },
    [](cuda::DevicePlace& place) { place.offset = 0 - std::uint64_t{64}; },
    [](cuda::DevicePlace& place) { place.region ^= 128; },
    [](cuda::DevicePlace& place) { place.region = cuda::region_of_addresses; },
};

// A broadcast is read where rank 0 has it, and what is reduced is written to where it belongs.
DeviceCase between_two_processes(Collective collective) {
  DeviceCase one;
  one.algorithm = "ring";
  one.collective = collective;
  one.direct = true;
  one.processes = 2;
  one.count = 401;
  return one;
}

void refuse(const std::function<void(DeviceJob&)>& spoil) {
  DeviceJob pulled(between_two_processes(Collective::broadcast));
  pulled.begin();
  spoil(pulled);
  auto grids = pulled.grids();
  grids.push_back(pulled.aborter(2, 5000));
  CHECK(run_grids(grids, {}) == "");
  CHECK(pulled.status(1).outcome == Outcome::mismatch);

  DeviceJob pushed(between_two_processes(Collective::all_reduce));
  pushed.begin();
  pushed.launches()[1].input_place = {};  // so that nothing is pulled from rank 1
  spoil(pushed);
  pushed.launches()[0].input_place = {};
  CHECK(run_grids(pushed.grids(), {}) == "");
  CHECK(pushed.compare() == "");
}

}  // namespace

TEST_CASE("what a peer lends beyond what was opened of it is not touched") {
  for (const Spoil spoil : spoils)
    refuse([&](DeviceJob& job) {
      for (cuda::DeviceRegion& region : job.regions(1, 0))
        if (region.number != 0) spoil(region);
    });
  for (const Lie lie : lies)
    refuse([&](DeviceJob& job) {
      lie(job.launches()[0].input_place);
      lie(job.launches()[0].output_place);
    });
}

TEST_CASE("a pair of type and operation that does not exist has no kernel") {
  for (int type = 0; type < element_type_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op) {
      const auto of_type = static_cast<ElementType>(type);
      const auto of_op = static_cast<ReduceOp>(op);
      const bool is_there = cuda::find_kernel(DeviceProtocol::ll, of_type, of_op) != nullptr;
      CHECK(is_there == exists(Collective::all_reduce, of_type, of_op));
    }
}

}  // namespace device_test
