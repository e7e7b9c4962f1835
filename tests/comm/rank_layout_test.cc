// RankLayout: the order of rings and the hosts of hierarchical plans, from what ranks say when they
// join; and the plans that follow it.
#include "lib/comm/rank_layout.h"

#include "lib/comm/join_info.h"
#include "lib/comm/plan_chooser.h"
#include "lib/comm/rank_levels.h"
#include "lib/device/gpu_info.h"
#include "tests/support/catch.h"

#include <vector>

namespace rank_layout_test {

using namespace gyre;
using namespace gyre::comm;

namespace {

// A process a rank, on the host of that number.
control::Roster roster_of(const std::vector<int>& hosts,
                          const std::vector<topology::Locality>& localities = {}) {
  control::Roster roster;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    trust::ProcessIdentity process;
    process.host.fill(static_cast<std::uint8_t>(hosts[rank]));
    roster.processes.push_back(process);
    roster.process_of_rank.push_back(static_cast<std::uint32_t>(rank));
    const std::string locality = rank < localities.size() ? encode(localities[rank]) : "";
    roster.notes.push_back(encode(JoinInfo{"settings", "", "0000000000000001", locality}));
  }
  return roster;
}

using Order = std::vector<std::int32_t>;

std::string_view algorithm_for(const control::Roster& roster) {
  const RankLayout layout(roster);
  const auto ranks = static_cast<int>(roster.notes.size());
  tune::TuningInputs inputs;
  inputs.ranks = ranks;
  inputs.levels = find_levels(layout, roster, false, true);
  inputs.slot_bytes = 64 << 10;
  inputs.line_count = 128;
  PlanChooser plans(0, ranks, {});
  plans.follow(layout);
  Request request;
  request.collective = plan::Collective::all_reduce;
  request.count = 8 << 20;
  const auto chosen = plans.choose(request, inputs);
  REQUIRE(chosen.ok());
  return chosen->choice.algorithm->name;
}

}  // namespace

TEST_CASE("ranks dealt out to hosts are put together host by host") {
  const control::Roster roster = roster_of({7, 9, 7, 9});
  const RankLayout layout(roster);
  CHECK(layout.order() == Order{0, 2, 1, 3});
  CHECK(layout.equal_hosts() == 2);
  CHECK(layout.of(0).host == layout.of(2).host);
  CHECK_FALSE(layout.of(0).host == layout.of(1).host);
  CHECK(layout.text() == "2 hosts of 2, 2 ranks, rings in the order 0 2 1 3");
  CHECK(algorithm_for(roster) == "hierarchical");
}

TEST_CASE("ranks in order keep it, and unequal hosts have no levels") {
  const RankLayout one(roster_of({7, 7, 7}));
  CHECK(one.order().empty());
  CHECK(one.equal_hosts() == 1);
  CHECK(one.text() == "one host of 3 ranks, rings in rank order");
  const RankLayout unequal(roster_of({7, 9, 7}));
  CHECK(unequal.order() == Order{0, 2, 1});
  CHECK(unequal.equal_hosts() == 1);
  CHECK(algorithm_for(roster_of({7, 9, 7})) == "ring");
  const RankLayout spread(roster_of({7, 9, 5}));
  CHECK(spread.equal_hosts() == 3);
  CHECK(algorithm_for(roster_of({7, 9, 5})) == "ring");
}

TEST_CASE("ranks on GPUs follow each other along the PCI tree") {
  control::Roster roster = roster_of({7, 7, 7, 7, 7});
  const std::vector<std::string> bus_ids = {"0000:C1:00.0", "0000:1B:00.0", "0000:9A:00.0",
                                            "0000:1B:00.0", "0000:43:00.0"};
  for (std::size_t rank = 0; rank < bus_ids.size(); ++rank) {
    GpuInfo gpu;
    gpu.uuid = "gpu";
    gpu.blocks = gpu.connections = gpu.channels = 1;
    gpu.bus_id = bus_ids[rank];
    roster.notes[rank] = encode(JoinInfo{"settings", encode(gpu), "0000000000000001", "-,-,-,-"});
  }
  const RankLayout layout(roster);
  CHECK(layout.order() == Order{1, 3, 4, 2, 0});
}

TEST_CASE("levels are caches, hosts and the network, each with what ranks reach each other by") {
  const std::vector<topology::Locality> places = {
      {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 8, 8}, {0, 0, 8, 9}};
  const control::Roster one = roster_of({7, 7, 7, 7}, places);
  const auto on_one = find_levels(RankLayout(one), one, true, true);
  REQUIRE(on_one.size() == 3);
  CHECK(on_one[0].part == tune::LevelPart::cache);
  CHECK((on_one[0].parts == 2 && on_one[0].ranks == 2));
  CHECK(on_one[1].part == tune::LevelPart::numa_node);
  CHECK(on_one[2].part == tune::LevelPart::host);
  CHECK((on_one[2].parts == 1 && on_one[2].ranks == 4));
  for (const tune::Level& level : on_one) CHECK(level.medium == topology::Medium::host_memory);

  control::Roster two = roster_of({7, 7, 9, 9});
  const auto told = [&](std::size_t rank, const char* announcement, const char* wires) {
    two.notes[rank] =
        encode(JoinInfo{"settings", "", "0000000000000001", "", announcement, "", wires});
  };
  for (std::size_t rank = 0; rank < 4; ++rank) told(rank, "", "tcp=1250");
  told(2, "", "tcp=125");
  const auto on_two = find_levels(RankLayout(two), two, false, true);
  REQUIRE(on_two.size() == 2);
  CHECK((on_two[0].part == tune::LevelPart::host && on_two[0].parts == 2 && on_two[0].ranks == 2));
  CHECK(on_two[1].part == tune::LevelPart::network);
  CHECK(on_two[1].medium == topology::Medium::sockets);
  CHECK(on_two[1].gigabytes_per_s == 0.125);
  CHECK(tune::levels_text(on_two) ==
        "2 ranks in each of 2 hosts by the host's memory, no figure, 0.3 us assumed; "
        "4 ranks in one network by TCP, 0.125 GB/s, 14 us assumed");

  for (std::size_t rank = 0; rank < 4; ++rank) told(rank, "rdma=roce4", "rdma=50000,tcp=125");
  CHECK(find_levels(RankLayout(two), two, false, true).back().gigabytes_per_s == 50);
  told(1, "", "tcp=125");
  CHECK(find_levels(RankLayout(two), two, false, true).back().medium == topology::Medium::sockets);
  told(1, "", "tcp=many");
  CHECK(find_levels(RankLayout(two), two, false, true).back().gigabytes_per_s == 0);

  const auto gpus = on_gpus(find_levels(RankLayout(two), two, false, true), false);
  CHECK(gpus[0].medium == topology::Medium::gpu_memory);
  CHECK(gpus[1].medium == topology::Medium::sockets);
  CHECK(on_gpus(gpus, true)[1].medium == topology::Medium::gpu_memory);
}

TEST_CASE("the word of a wire's width is read from peers, whatever they send") {
  CHECK(wire_megabytes_per_s("rdma=50000,tcp=1250", "tcp") == 1250);
  CHECK(wire_megabytes_per_s("rdma=50000,tcp=1250", "rdma") == 50000);
  for (const char* bad : {"", "tcp", "tcp=", "tcp=-1", "tcp=1x", "tcpx=1", "rdma=1",
                          "tcp=99999999999999999999", ",,=,"})
    CHECK(wire_megabytes_per_s(bad, "tcp") == 0);
}

TEST_CASE("on a host the order follows its caches") {
  const RankLayout layout(
      roster_of({7, 7, 7, 7}, {{0, 0, 0, 0}, {1, 1, 8, 8}, {0, 0, 0, 1}, {1, 1, 8, 9}}));
  CHECK(layout.order() == Order{0, 2, 1, 3});
  CHECK(path_class(layout.of(0).locality, layout.of(2).locality) == topology::PathClass::cache);
  CHECK(path_class(layout.of(0).locality, layout.of(1).locality) ==
        topology::PathClass::interconnect);
}

}  // namespace rank_layout_test
