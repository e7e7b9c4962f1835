#include "lib/topology/gyre_info.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace gyre::topology {
namespace {

constexpr std::array<std::string_view, 3> protocol_names = {"unknown", "ethernet", "infiniband"};
constexpr std::array<std::string_view, 2> joint_names = {"nvlink", "c2c"};

// The text before the first such character, and the text after it.
std::pair<std::string_view, std::string_view> parted(std::string_view text, char by) {
  const std::size_t place = text.find(by);
  if (place == text.npos) return {text, {}};
  return {text.substr(0, place), text.substr(place + 1)};
}

// Words as an element's attributes, which are read with the same checks.
XmlElement as_attributes(std::string_view words, const XmlElement& element) {
  XmlElement made;
  made.name = element.name;
  made.line = element.line;
  while (!words.empty()) {
    const auto [word, rest] = parted(words, ' ');
    const auto [name, value] = parted(word, '=');
    made.set(std::string(name), std::string(value));
    words = rest;
  }
  return made;
}

template <typename Names>
Result<int> read_name(const XmlElement& words, std::string_view key, const Names& names) {
  const auto found = std::ranges::find(names, words.attribute(key));
  if (found == names.end())
    return words.wrong(
        fmt::format("{}=\"{}\" is none of {}", key, words.attribute(key), fmt::join(names, ", ")));
  return static_cast<int>(found - names.begin());
}

std::string without_blanks(std::string text) {
  std::ranges::replace(text, ' ', '_');
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

Result<int> find_end(const XmlElement& words, std::string_view key, const LinkEnds& ends) {
  const auto found = ends.find(words.attribute(key));
  if (found != ends.end()) return found->second;
  return words.wrong(fmt::format("{}=\"{}\" is no node of this file that a link may end at", key,
                                 words.attribute(key).substr(0, 80)));
}

// The other way round; links are few.
std::string end_text(const LinkEnds& ends, int index) {
  return std::ranges::find(ends, index, [](const auto& one) { return one.second; })->first;
}

}  // namespace

std::string gpu_words(const GpuTraits& gpu) {
  return fmt::format("ordinal={} capability={} nic_reaches={} uuid={}", gpu.ordinal, gpu.capability,
                     gpu.nic_reaches ? 1 : 0, without_blanks(gpu.uuid));
}

std::string port_words(const TopologyNode& node) {
  const PortTraits port = node.port.value_or(PortTraits{});
  return fmt::format(
      "protocol={} verbs={} up={} loopback={} virtual={} number={} mtu={} reaches_gpus={} "
      "gigabytes_per_s={} guid={} addresses={}",
      protocol_names[static_cast<std::size_t>(port.protocol)], port.has_verbs ? 1 : 0,
      port.is_up ? 1 : 0, port.is_loopback ? 1 : 0, port.is_virtual ? 1 : 0, port.number, port.mtu,
      port.nic_reaches_gpus ? 1 : 0, node.gigabytes_per_s, without_blanks(port.guid),
      fmt::join(port.addresses, ","));
}

std::string ucx_words(const UcxTransport& transport) {
  return fmt::format(
      "transport={} device={} dedicated_gigabytes_per_s={} shared_gigabytes_per_s={} "
      "latency_us={} latency_per_endpoint_us={} overhead_us={}",
      without_blanks(transport.transport), without_blanks(transport.device),
      transport.dedicated_gigabytes_per_s, transport.shared_gigabytes_per_s, transport.latency_us,
      transport.latency_per_endpoint_us, transport.overhead_us);
}

LinkEnds link_ends(const Topology& topology) {
  LinkEnds ends;
  int switches = 0;
  for (int i = 0; i < static_cast<int>(topology.nodes.size()); ++i) {
    const TopologyNode& node = topology.node(i);
    if (node.kind == NodeKind::numa_node) ends.emplace(fmt::format("numa:{}", node.number), i);
    if (node.kind == NodeKind::gpu) ends.emplace("gpu:" + node.bus_id, i);
    if (node.kind == NodeKind::nv_switch) ends.emplace(fmt::format("nvswitch:{}", switches++), i);
  }
  return ends;
}

std::string link_words(const LinkEnds& ends, const TopologyLink& link) {
  return fmt::format("from={} to={} kind={} lanes={} gigabytes_per_s={}", end_text(ends, link.from),
                     end_text(ends, link.to), joint_names[static_cast<std::size_t>(link.kind)],
                     link.lanes, link.gigabytes_per_s);
}

Result<GpuTraits> read_gpu_words(std::string_view text, const XmlElement& element) {
  const XmlElement words = as_attributes(text, element);
  GpuTraits gpu;
  GYRE_ASSIGN(const std::int64_t ordinal, words.integer("ordinal", -1, -1, 4096));
  GYRE_ASSIGN(const std::int64_t capability, words.integer("capability", 0, 0, 1000));
  GYRE_ASSIGN(const std::int64_t reaches, words.integer("nic_reaches", 0, 0, 1));
  gpu.ordinal = static_cast<int>(ordinal);
  gpu.capability = static_cast<int>(capability);
  gpu.nic_reaches = reaches == 1;
  gpu.uuid = words.attribute("uuid");
  return gpu;
}

Status read_port_words(std::string_view text, const XmlElement& element, TopologyNode& node) {
  const XmlElement words = as_attributes(text, element);
  PortTraits port;
  GYRE_ASSIGN(const int protocol, read_name(words, "protocol", protocol_names));
  port.protocol = static_cast<PortProtocol>(protocol);
  const auto read_flag = [&](std::string_view key, bool& flag) -> Status {
    GYRE_ASSIGN(const std::int64_t value, words.integer(key, 0, 0, 1));
    flag = value == 1;
    return {};
  };
  GYRE_TRY(read_flag("verbs", port.has_verbs));
  GYRE_TRY(read_flag("up", port.is_up));
  GYRE_TRY(read_flag("loopback", port.is_loopback));
  GYRE_TRY(read_flag("virtual", port.is_virtual));
  GYRE_TRY(read_flag("reaches_gpus", port.nic_reaches_gpus));
  GYRE_ASSIGN(const std::int64_t number, words.integer("number", 1, 0, 255));
  GYRE_ASSIGN(const std::int64_t mtu, words.integer("mtu", 0, 0, 1 << 24));
  GYRE_ASSIGN(node.gigabytes_per_s, words.figure("gigabytes_per_s", 0));
  port.number = static_cast<int>(number);
  port.mtu = static_cast<int>(mtu);
  port.guid = words.attribute("guid");
  port.addresses = split(words.attribute("addresses"));
  node.port = std::move(port);
  return {};
}

Result<UcxTransport> read_ucx_words(std::string_view text, const XmlElement& element) {
  const XmlElement words = as_attributes(text, element);
  UcxTransport transport;
  transport.transport = words.attribute("transport");
  transport.device = words.attribute("device");
  GYRE_ASSIGN(transport.dedicated_gigabytes_per_s, words.figure("dedicated_gigabytes_per_s", 0));
  GYRE_ASSIGN(transport.shared_gigabytes_per_s, words.figure("shared_gigabytes_per_s", 0));
  GYRE_ASSIGN(transport.latency_us, words.figure("latency_us", 0));
  GYRE_ASSIGN(transport.latency_per_endpoint_us, words.figure("latency_per_endpoint_us", 0));
  GYRE_ASSIGN(transport.overhead_us, words.figure("overhead_us", 0));
  return transport;
}

Result<TopologyLink> read_link_words(std::string_view text, const XmlElement& element,
                                     const LinkEnds& ends) {
  const XmlElement words = as_attributes(text, element);
  TopologyLink link;
  GYRE_ASSIGN(link.from, find_end(words, "from", ends));
  GYRE_ASSIGN(link.to, find_end(words, "to", ends));
  GYRE_ASSIGN(const int kind, read_name(words, "kind", joint_names));
  link.kind = static_cast<JointKind>(kind);
  GYRE_ASSIGN(const std::int64_t lanes, words.integer("lanes", 1, 1, 1024));
  link.lanes = static_cast<int>(lanes);
  GYRE_ASSIGN(link.gigabytes_per_s, words.figure("gigabytes_per_s", 0));
  if (link.from > link.to) std::swap(link.from, link.to);
  return link;
}

}  // namespace gyre::topology
