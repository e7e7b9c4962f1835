// The rings of communicators of GPUs: those that a search finds over the machine, whether NVML or a
// file describes it; and calls along them. The driver and NVML are fakes, the machines described.
#include "lib/comm/process.h"
#include "lib/comm/ring_searches.h"
#include "lib/topology/channel_text.h"
#include "lib/topology/outline.h"
#include "tests/support/base/log_file.h"
#include "tests/support/catch.h"
#include "tests/support/device/described_devices.h"
#include "tests/support/device/device_ranks.h"
#include "tests/support/fake_cuda/fake_nvml.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

namespace device_rings_test {

using namespace gyre;
using namespace gyre::tests;
using topology::NodeKind;
using topology::Topology;

namespace {

using Orders = std::vector<std::vector<std::int32_t>>;

// What NVML says of such a machine.
FakeNvmlOptions nvml_of(const Topology& machine) {
  FakeNvmlOptions options;
  const std::vector<int> gpus = machine.all(NodeKind::gpu);
  options.gpus.resize(gpus.size());
  const auto lanes = [machine, gpus](int device, int other) {
    const int from = machine.find_bus_id(fake_bus_id(device));
    const int to = other < 0 ? machine.all(NodeKind::nv_switch).front()
                             : machine.find_bus_id(fake_bus_id(other));
    for (const topology::TopologyLink& link : machine.links)
      if (link.from == std::min(from, to) && link.to == std::max(from, to))
        return static_cast<unsigned>(link.lanes);
    return 0U;
  };
  for (std::size_t i = 0; i < gpus.size(); ++i) options.gpus[i] = static_cast<int>(i);
  options.between = [lanes](int a, int b) {
    return FakeBetween{.level = loaded::nvml::topology_system, .lanes = lanes(a, b)};
  };
  if (!machine.all(NodeKind::nv_switch).empty())
    options.switch_lanes = [lanes](int device) { return lanes(device, -1); };
  return options;
}

// In place of NVML, for its lifetime.
class OnFakeNvml {
 public:
  explicit OnFakeNvml(const Topology& machine) : fake_(nvml_of(machine)) {
    comm::process().use_nvml(fake_.table());
  }
  ~OnFakeNvml() { comm::process().use_nvml(nullptr); }
  OnFakeNvml(const OnFakeNvml&) = delete;
  OnFakeNvml& operator=(const OnFakeNvml&) = delete;

 private:
  FakeNvml fake_;
};

// A rank on each of the fake's devices, all driven by this thread.
class RankPerDevice {
 public:
  RankPerDevice(const OnFake& on, int ranks, int max_channels) : on_(on), comms_(places(ranks)) {
    gyreUniqueId id;
    REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
    REQUIRE(gyreGroupStart() == gyreSuccess);
    for (int rank = 0; rank < ranks; ++rank) {
      gyreConfig_t config = device_config(rank);
      config.maxCTAs = max_channels;
      REQUIRE(gyreCommInitRankConfig(&comms_[places(rank)], ranks, id, rank, &config) ==
              gyreSuccess);
    }
    const gyreResult_t begun = gyreGroupEnd();
    INFO(last_error());
    REQUIRE(begun == gyreSuccess);
    for (int rank = 0; rank < ranks; ++rank) {
      loaded::CuContext context = nullptr;
      REQUIRE(on_.driver->primary_retain(&context, rank) == loaded::cu::success);
      contexts_.push_back(context);
      const loaded::CurrentContext scope(*on_.driver, context);
      streams_.emplace_back();
      REQUIRE(on_.driver->stream_create(&streams_.back(), loaded::cu::stream_non_blocking) ==
              loaded::cu::success);
    }
  }
  ~RankPerDevice() {
    for (gyreComm_t comm : comms_) CHECK(gyreCommDestroy(comm) == gyreSuccess);
    for (std::size_t rank = 0; rank < contexts_.size(); ++rank) {
      (void)on_.driver->stream_destroy(streams_[rank]);
      (void)on_.driver->primary_release(static_cast<int>(rank));
    }
  }
  RankPerDevice(const RankPerDevice&) = delete;
  RankPerDevice& operator=(const RankPerDevice&) = delete;

  int size() const { return static_cast<int>(comms_.size()); }

  // The rings that an all-reduce takes, channel by channel, from rank 0 on.
  Orders rings() const {
    std::vector<std::span<const plan::Plan>> plans;
    for (gyreComm_t comm : comms_) {
      plans.push_back(all_reduce_plans(comm));
      REQUIRE(plans.back().size() == plans.front().size());
      REQUIRE(plans.back().front().algorithm() == "ring");
    }
    Orders orders;
    for (std::size_t channel = 0; channel < plans.front().size(); ++channel) {
      std::vector<std::int32_t>& order = orders.emplace_back();
      for (std::int32_t rank = 0; order.empty() || rank != 0;) {
        order.push_back(rank);
        const plan::Lane lane = plans[places(rank)][channel].lane(0);
        rank = lane.links[lane.steps[0].send_first].peer;
        REQUIRE(order.size() <= comms_.size());
      }
    }
    return orders;
  }

  // Of so many elements a block; what was wrong.
  std::string complaint_about(const Collective& one, std::size_t count) {
    const auto elements = [&](int blocks) { return count * places(blocks < 0 ? size() : blocks); };
    std::vector<std::int32_t*> in, out;
    for (int rank = 0; rank < size(); ++rank) {
      in.push_back(memory(rank, elements(one.brings)));
      out.push_back(memory(rank, elements(one.gets)));
      for (std::size_t i = 0; i < elements(one.brings); ++i) in.back()[i] = brought(rank, i);
    }
    (void)gyreGroupStart();
    for (int rank = 0; rank < size(); ++rank) {
      const loaded::CurrentContext scope(*on_.driver, contexts_[places(rank)]);
      (void)one.call(in[places(rank)], out[places(rank)], count, comms_[places(rank)],
                     reinterpret_cast<gyreStream_t>(streams_[places(rank)]));
    }
    std::string wrong;
    if (gyreGroupEnd() != gyreSuccess) wrong = last_error();
    for (loaded::CuStream stream : streams_)
      if (on_.driver->stream_synchronize(stream) != loaded::cu::success) wrong = "a stream failed";
    for (int rank = 0; rank < (one.root_only ? 1 : size()) && wrong.empty(); ++rank)
      for (std::size_t i = 0; i < elements(one.gets) && wrong.empty(); ++i)
        if (out[places(rank)][i] != one.wanted(size(), rank, i, count))
          wrong = fmt::format("element {} of rank {}", i, rank);
    for (auto* const list : {&in, &out})
      for (std::int32_t* const place : *list)
        (void)on_.driver->free(reinterpret_cast<loaded::CuDevicePointer>(place));
    return wrong;
  }

 private:
  static std::size_t places(int count) { return static_cast<std::size_t>(count); }
  // Of a device; the fake's is the host's as well.
  std::int32_t* memory(int rank, std::size_t count) const {
    const loaded::CurrentContext scope(*on_.driver, contexts_[places(rank)]);
    loaded::CuDevicePointer made = 0;
    REQUIRE(on_.driver->allocate(&made, std::max<std::size_t>(1, count) * sizeof(std::int32_t)) ==
            loaded::cu::success);
    return reinterpret_cast<std::int32_t*>(made);
  }

  const OnFake& on_;
  std::vector<gyreComm_t> comms_;
  std::vector<loaded::CuContext> contexts_;
  std::vector<loaded::CuStream> streams_;
};

constexpr int max_channels = 8;

// The rings over all devices of a machine, as a search of its own finds them.
topology::Cluster cluster_of(const Topology& machine, int devices) {
  topology::Cluster cluster;
  cluster.machines.push_back(machine);
  cluster.hosts.emplace_back();
  for (int rank = 0; rank < devices; ++rank)
    cluster.hosts[0].members.push_back({rank, machine.find_bus_id(fake_bus_id(rank))});
  return cluster;
}

topology::FoundChannels rings_over(const topology::Cluster& cluster) {
  const auto found = topology::find_rings(cluster, {.max_channels = max_channels});
  INFO(found.status().message());
  REQUIRE(found.ok());
  return *found;
}

Variables ring_only() { return {{"GYRE_ALGO", "ring"}, {"GYRE_BUFFSIZE", "32768"}}; }

FakeCudaOptions eight_devices() { return {.devices = 8, .memory_bytes = 4ULL << 30}; }

Orders in_rank_order(int ranks) {
  Orders orders(1);
  for (std::int32_t rank = 0; rank < ranks; ++rank) orders[0].push_back(rank);
  return orders;
}

}  // namespace

TEST_CASE("communicators take the rings of the machine that a file describes", "[device]") {
  for (const std::string& name : machine_names()) {
    const Topology described = described_machine(name);
    if (described.all(NodeKind::gpu).size() != 8) continue;
    CAPTURE(name);
    const Topology machine = with_fake_devices(described);
    const TopologyFile file(machine);
    Variables variables = ring_only();
    variables.emplace("GYRE_TOPO_FILE", file.path());
    OnFake on(eight_devices(), variables);
    const RankPerDevice ranks(on, 8, max_channels);
    CHECK(ranks.rings() == comm::ring_orders(rings_over(cluster_of(machine, 8))));
  }
}

TEST_CASE("calls are right along the different rings of a mesh of NVLinks", "[device]") {
  const Topology mesh = with_fake_devices(described_machine("dgx1_v100"));
  const OnFakeNvml nvml(mesh);
  OnFake on(eight_devices(), ring_only());
  RankPerDevice ranks(on, 8, max_channels);
  const Orders rings = ranks.rings();
  CHECK(rings.size() > 1);
  // Each hop of each ring is an NVLink.
  for (const std::vector<std::int32_t>& ring : rings)
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const int from = mesh.find_bus_id(fake_bus_id(ring[i]));
      const int to = mesh.find_bus_id(fake_bus_id(ring[(i + 1) % ring.size()]));
      CHECK(std::ranges::any_of(mesh.links, [&](const topology::TopologyLink& link) {
        return link.from == std::min(from, to) && link.to == std::max(from, to);
      }));
    }
  for (const Collective& one : collectives()) {
    CAPTURE(one.name);
    for (const std::size_t count : {std::size_t{3}, std::size_t{5'003}, std::size_t{70'001}})
      CHECK(ranks.complaint_about(one, one.gets < 0 || one.brings < 0 ? count / 4 : count) == "");
  }
}

TEST_CASE("all ranks give a tree as many channels, though its roots have fewer lanes", "[device]") {
  OnFake on({.devices = 3, .memory_bytes = 4ULL << 30},
            {{"GYRE_ALGO", "tree"}, {"GYRE_BUFFSIZE", "32768"}});
  RankPerDevice ranks(on, 3, 16);
  CHECK(ranks.complaint_about(collectives().front(), 200'003) == "");
}

TEST_CASE("the log says which rings a communicator takes, as gyre topo does", "[device]") {
  const Topology mesh = with_fake_devices(described_machine("dgx1_v100"));
  const TopologyFile file(mesh);
  const test::LogFile log;
  Variables variables = ring_only();
  variables.emplace("GYRE_TOPO_FILE", file.path());
  OnFake on(eight_devices(), variables);
  REQUIRE(configure_log(LogLevel::info, log.path()).ok());
  const RankPerDevice ranks(on, 8, max_channels);
  const topology::Cluster cluster = cluster_of(topology::outline(mesh), 8);
  const topology::FoundChannels found = rings_over(cluster);
  std::vector<std::string> wanted = channel_lines(cluster, found);
  wanted.push_back("--channels 8): " + reason_text(found));
  const std::vector<std::string> lines = log.lines();
  for (const std::string& one : wanted) {
    INFO(one);
    CHECK(std::ranges::count_if(lines,
                                [&](const std::string& line) { return line.ends_with(one); }) == 1);
  }
}

TEST_CASE("without a description, and with nothing to choose, rings are in rank order",
          "[device]") {
  const int which = GENERATE(0, 1);
  CAPTURE(which);
  Topology plain = with_fake_devices(described_machine("dgx1_v100"));
  plain.links.clear();
  for (topology::TopologyNode& node : plain.nodes)
    if (node.port && node.name != "mlx5_0") node.port->is_up = false;
  const TopologyFile file(plain);
  Variables variables = ring_only();
  if (which == 1) variables.emplace("GYRE_TOPO_FILE", file.path());
  comm::process().use_nvml(nullptr);
  OnFake on(eight_devices(), variables);
  RankPerDevice ranks(on, 8, max_channels);
  CHECK(ranks.rings() == in_rank_order(8));
  CHECK(ranks.complaint_about(collectives().front(), 5'003) == "");
}

}  // namespace device_rings_test
