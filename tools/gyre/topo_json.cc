// A machine and the searches on it as JSON.
#include "tools/gyre/topo_search.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>

namespace gyre::tools {

using nlohmann::ordered_json;
using namespace topology;

const char* const topo_json_schema =
    "JSON (--json), schema gyre-topo-1; 10^9 bytes per second, null where not known:\n"
    "  schema, missed[] (facts that could not be found out)\n"
    "  nodes[]: index, kind, parent (an index), number, level, name, bus_id,\n"
    "    processors, bytes, gigabytes_per_s,\n"
    "    processor {vendor, family, model, name},\n"
    "    gpu {ordinal, capability, nic_reaches, uuid},\n"
    "    port {protocol, verbs, up, loopback, virtual, number, mtu, reaches_gpus, guid,\n"
    "      addresses[]}\n"
    "    ucx[] (of ports; of the host those on other devices): transport, device,\n"
    "      dedicated_gigabytes_per_s (of each process), shared_gigabytes_per_s (of all),\n"
    "      latency_us, latency_per_endpoint_us, overhead_us\n"
    "  links[]: from, to (indexes), kind (nvlink, c2c), lanes, gigabytes_per_s\n"
    "  with --rings or --trees:\n"
    "  hosts[]: ranks[] of {rank, node}\n"
    "  rings, trees: channel_gigabytes_per_s, gigabytes_per_s, bound_gigabytes_per_s,\n"
    "    bound_reason, limit, steps\n"
    "    channels[]: order[], parents[] (of trees, by rank; -1: the root),\n"
    "      crossings[]: from_host, to_host, from_port, to_port (nodes)";

namespace {

ordered_json known(double figure) { return figure > 0 ? ordered_json(figure) : ordered_json(); }

ordered_json to_json(const PortTraits& port) {
  constexpr std::array<const char*, 3> protocols = {"unknown", "ethernet", "infiniband"};
  return {{"protocol", protocols[static_cast<std::size_t>(port.protocol)]},
          {"verbs", port.has_verbs},
          {"up", port.is_up},
          {"loopback", port.is_loopback},
          {"virtual", port.is_virtual},
          {"number", port.number},
          {"mtu", port.mtu},
          {"reaches_gpus", port.nic_reaches_gpus},
          {"guid", port.guid},
          {"addresses", port.addresses}};
}

// A bandwidth is known in both its parts, or in none.
ordered_json to_json(const UcxTransport& one) {
  const bool is_known = one.gigabytes_per_s() > 0;
  const auto part = [&](double figure) { return is_known ? ordered_json(figure) : ordered_json(); };
  return {{"transport", one.transport},
          {"device", one.device},
          {"dedicated_gigabytes_per_s", part(one.dedicated_gigabytes_per_s)},
          {"shared_gigabytes_per_s", part(one.shared_gigabytes_per_s)},
          {"latency_us", known(one.latency_us)},
          {"latency_per_endpoint_us", known(one.latency_per_endpoint_us)},
          {"overhead_us", known(one.overhead_us)}};
}

ordered_json to_json(const TopologyNode& node, int index) {
  ordered_json made = {{"index", index}, {"kind", kind_name(node.kind)}, {"parent", node.parent}};
  if (node.number >= 0) made["number"] = node.number;
  if (node.level > 0) made["level"] = node.level;
  if (!node.name.empty()) made["name"] = node.name;
  if (!node.bus_id.empty()) made["bus_id"] = node.bus_id;
  if (!node.processors.empty()) made["processors"] = node.processors.list();
  if (node.bytes > 0) made["bytes"] = node.bytes;
  if (!node.bus_id.empty() || node.port) made["gigabytes_per_s"] = known(node.gigabytes_per_s);
  if (node.processor)
    made["processor"] = {{"vendor", node.processor->vendor},
                         {"family", node.processor->family},
                         {"model", node.processor->model},
                         {"name", node.processor->name}};
  if (node.gpu)
    made["gpu"] = {{"ordinal", node.gpu->ordinal},
                   {"capability", node.gpu->capability},
                   {"nic_reaches", node.gpu->nic_reaches},
                   {"uuid", node.gpu->uuid}};
  if (node.port) made["port"] = to_json(*node.port);
  for (const UcxTransport& one : node.ucx) made["ucx"].push_back(to_json(one));
  return made;
}

ordered_json to_json(const FoundChannels& found) {
  ordered_json made = {{"channel_gigabytes_per_s", found.channel_gigabytes_per_s},
                       {"gigabytes_per_s", found.gigabytes_per_s},
                       {"bound_gigabytes_per_s", found.bound_gigabytes_per_s},
                       {"bound_reason", found.bound_reason},
                       {"limit", found.limit},
                       {"steps", found.steps},
                       {"channels", ordered_json::array()}};
  for (const FoundChannel& channel : found.channels) {
    ordered_json one = {{"order", channel.order}};
    if (!channel.parents.empty()) one["parents"] = channel.parents;
    one["crossings"] = ordered_json::array();
    for (const HostCrossing& crossing : channel.crossings)
      one["crossings"].push_back({{"from_host", crossing.from_host},
                                  {"to_host", crossing.to_host},
                                  {"from_port", crossing.from_port},
                                  {"to_port", crossing.to_port}});
    made["channels"].push_back(std::move(one));
  }
  return made;
}

}  // namespace

std::string search_json(const TopoSearch& search) {
  const Topology& machine = search.cluster.machines.front();
  ordered_json made = {{"schema", "gyre-topo-1"},
                       {"missed", machine.missed},
                       {"nodes", ordered_json::array()},
                       {"links", ordered_json::array()}};
  for (int i = 0; i < static_cast<int>(machine.nodes.size()); ++i)
    made["nodes"].push_back(to_json(machine.node(i), i));
  for (const TopologyLink& link : machine.links)
    made["links"].push_back({{"from", link.from},
                             {"to", link.to},
                             {"kind", link.kind == JointKind::nvlink ? "nvlink" : "c2c"},
                             {"lanes", link.lanes},
                             {"gigabytes_per_s", known(link.gigabytes_per_s)}});
  if (!search.found.empty()) made["hosts"] = ordered_json::array();
  for (const ClusterHost& host : search.cluster.hosts) {
    if (search.found.empty()) break;
    ordered_json ranks = ordered_json::array();
    for (const ClusterMember& member : host.members)
      ranks.push_back({{"rank", member.rank}, {"node", member.node}});
    made["hosts"].push_back({{"ranks", std::move(ranks)}});
  }
  for (const FoundChannels& found : search.found)
    made[fmt::format("{}s", pattern_name(found.pattern))] = to_json(found);
  // Names from files may be no UTF-8.
  return made.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gyre::tools
