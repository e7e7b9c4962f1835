// Pictures of machines, by their text, and the difference of two machines.
#include "lib/topology/draw.h"

#include "lib/topology/describe.h"
#include "lib/topology/xml.h"
#include "tests/support/catch.h"
#include "tests/topologies/described_machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace draw_test {

using namespace gyre;
using namespace gyre::topology;

namespace {

struct Drawn {
  Cluster cluster;
  std::vector<FoundChannels> found;
  std::string text;
};

Drawn drawn(const Topology& machine, int hosts) {
  Drawn made{equal_hosts(machine, hosts, usual_members(machine)), {}, {}};
  for (const auto& found : {find_rings(made.cluster), find_trees(made.cluster)}) {
    INFO(found.status().message());
    REQUIRE(found.ok());
    made.found.push_back(*found);
  }
  const Result<std::string> text = draw(made.cluster, made.found);
  INFO(text.status().message());
  REQUIRE(text.ok());
  made.text = *text;
  return made;
}

XmlElement parsed(const std::string& text) {
  Result<XmlElement> root = parse_xml(text);
  INFO(root.status().message());
  REQUIRE(root.ok());
  return std::move(root).value();
}

int count(const std::string& text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

int different_orders(const FoundChannels& found) {
  std::set<std::vector<int>> orders;
  for (const FoundChannel& channel : found.channels) orders.insert(channel.order);
  return static_cast<int>(orders.size());
}

}  // namespace

TEST_CASE("every picture has its machine's parts, inside of the page, and a line for each order",
          "[topology]") {
  for (const std::string& name : tests::machine_names()) {
    CAPTURE(name);
    const Topology machine = tests::described_machine(name);
    const Drawn one = drawn(machine, 1);
    const XmlElement root = parsed(one.text);
    CHECK(root.name == "svg");
    const double width = *root.figure("width", 0), height = *root.figure("height", 0);
    for (const XmlElement& part : root.children) {
      if (part.name != "g" || part.attribute("class") == "labels") continue;
      const auto box = std::ranges::find(part.children, "rect", &XmlElement::name);
      REQUIRE(box != part.children.end());
      CHECK(*box->figure("x", -1) + *box->figure("width", 1e9) <= width);
      CHECK(*box->figure("y", -1) + *box->figure("height", 1e9) <= height);
    }
    for (const NodeKind kind : {NodeKind::package, NodeKind::numa_node, NodeKind::cache,
                                NodeKind::pci_switch, NodeKind::gpu, NodeKind::nv_switch})
      for (const int node : machine.all(kind))
        CHECK_THAT(one.text, tests::has_text("<title>" + node_text(machine.node(node)) + "<"));
    CHECK(count(one.text, "<path class=\"ring\"") == different_orders(one.found[0]));
    CHECK(count(one.text, "<path class=\"tree\"") == different_orders(one.found[1]));
    CHECK_THAT(one.text,
               tests::has_text(fmt::format("{:.4g} GB/s in all", one.found[0].gigabytes_per_s)));
  }
}

TEST_CASE("rings between hosts are drawn from port to port", "[topology]") {
  const Topology machine = tests::described_machine("hgx_h100");
  const Drawn two = drawn(machine, 2), one = drawn(machine, 1);
  CHECK(count(two.text, "<path class=\"ring\"") == 8);
  CHECK_THAT(two.text, tests::has_text(">ring 7</tspan>"));
  CHECK_THAT(one.text, tests::has_text(">rings 0, 1, 2, 3, 4, 5, 6</tspan>"));
  // A ring in one host has eight arcs and ends where it began; one that leaves has nine.
  const auto arcs = [](const std::string& text) {
    const std::size_t begin = text.find("d=\"M", text.find("<path class=\"ring\""));
    const std::string path = text.substr(begin, text.find('"', begin + 3) - begin);
    return std::ranges::count(path, 'Q');
  };
  CHECK(arcs(one.text) == 8);
  CHECK(arcs(two.text) == 9);
}

TEST_CASE("names from files cannot leave their place in a picture", "[topology]") {
  Topology machine = tests::described_machine("workstation_2");
  machine.nodes[0].name = "</text><script>\"&\x01";
  const Drawn one = drawn(machine, 1);
  CHECK(one.text.find("<script>") == std::string::npos);
  CHECK_THAT(one.text, tests::has_text("&lt;/text&gt;&lt;script&gt;&quot;&amp;"));
  CHECK(parsed(one.text).name == "svg");
}

TEST_CASE("loopback and virtual ports are not drawn, and many cores are one line", "[topology]") {
  const Drawn small = drawn(tests::described_machine("virtual_machine"), 1);
  CHECK_THAT(small.text, tests::has_text(">eth0<"));
  CHECK(small.text.find("port lo<") == std::string::npos);
  CHECK_THAT(small.text, tests::has_text("<title>core 1<"));
  const Drawn large = drawn(tests::described_machine("xeon_8480_pair"), 1);
  CHECK_THAT(large.text, tests::has_text("L3 cache, processors 0-55"));
  CHECK(large.text.find("<title>core ") == std::string::npos);
}

TEST_CASE("too large a machine is not drawn", "[topology]") {
  Topology machine = tests::described_machine("virtual_machine");
  while (machine.nodes.size() <= max_drawn_nodes) {
    TopologyNode nic;
    nic.kind = NodeKind::nic;
    nic.parent = 0;
    machine.add(nic);
  }
  const Result<std::string> text = draw(equal_hosts(machine, 1, usual_members(machine)), {});
  REQUIRE_FALSE(text.ok());
  CHECK_THAT(std::string(text.status().message()),
             tests::has_text("a picture of 4097 parts; the most are 4096"));
}

TEST_CASE("the difference of machines is what one has alone, below what both have", "[topology]") {
  const Topology sound = tests::described_machine("hgx_h100");
  CHECK(difference(sound, sound).empty());
  Topology other = sound;
  other.missed.emplace_back("something");
  CHECK(difference(sound, other).empty());
  const auto port = static_cast<std::size_t>(other.all(NodeKind::port)[6]);
  other.nodes[port].port->is_up = false;
  CHECK(difference(sound, other) ==
        "  host hgx_h100: processors 0-111\n    NUMA node 1\n      PCIe switch 0000:13:00.0: 63 "
        "GB/s\n        NIC 0000:15:00.0: 63 "
        "GB/s\n"
        "-         port mlx5_6: protocol not known, up, verbs, 50 GB/s\n"
        "+         port mlx5_6: protocol not known, down, verbs, 50 GB/s\n");
  const std::string back = difference(other, sound);
  CHECK_THAT(back, tests::has_text("-         port mlx5_6: protocol not known, down"));
}

}  // namespace draw_test
