#include "lib/comm/machine_message.h"

#include "lib/topology/outline.h"
#include "lib/trust/derive.h"
#include "lib/trust/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace gyre::comm {
namespace {

using topology::NodeKind;
using topology::Topology;
using topology::TopologyLink;
using topology::TopologyNode;

constexpr std::uint32_t outline_version = 1;
// A rack of 72 GPUs has 300 nodes. A message has at most 64 KiB.
constexpr std::uint32_t max_outlined_nodes = 1024, max_outlined_links = 4096;
constexpr std::size_t max_outline_bytes = 48 << 10;
constexpr std::size_t max_device_name = 64;
constexpr std::uint32_t max_megabytes_per_s = 1'000'000'000;
constexpr int max_number = 1 << 20;

// Of a node, which parts follow; of a port and a GPU, what is true of them.
constexpr std::uint8_t has_processor = 1, has_gpu = 2, has_port = 4;
constexpr std::uint8_t has_verbs = 1, port_reaches_gpus = 2;

bool is_in_outline(NodeKind kind) { return kind != NodeKind::cache && kind != NodeKind::core; }

std::uint32_t megabytes_of(double gigabytes_per_s) {
  return static_cast<std::uint32_t>(std::llround(gigabytes_per_s * 1000));
}

void put(trust::Writer& writer, const TopologyNode& node) {
  writer.put(static_cast<std::uint8_t>(node.kind));
  writer.put(node.parent);
  writer.put(node.number);
  writer.put(megabytes_of(node.gigabytes_per_s));
  writer.put_text(node.bus_id);
  writer.put(static_cast<std::uint8_t>((node.processor ? has_processor : 0) |
                                       (node.gpu ? has_gpu : 0) | (node.port ? has_port : 0)));
  if (node.processor) {
    writer.put_text(node.processor->vendor);
    writer.put(node.processor->family);
    writer.put(node.processor->model);
  }
  if (node.gpu) {
    writer.put(node.gpu->capability);
    writer.put(static_cast<std::uint8_t>(node.gpu->nic_reaches));
  }
  if (node.port) {
    writer.put_text(node.name);
    writer.put(node.port->number);
    writer.put(static_cast<std::uint8_t>((node.port->has_verbs ? has_verbs : 0) |
                                         (node.port->nic_reaches_gpus ? port_reaches_gpus : 0)));
  }
}

control::MessageBytes encode_outline(const Topology& outline) {
  trust::Writer writer;
  writer.put(outline_version);
  writer.put(static_cast<std::uint32_t>(outline.nodes.size()));
  for (const TopologyNode& node : outline.nodes) put(writer, node);
  writer.put(static_cast<std::uint32_t>(outline.links.size()));
  for (const TopologyLink& link : outline.links) {
    writer.put(link.from);
    writer.put(link.to);
    writer.put(static_cast<std::uint8_t>(link.kind));
    writer.put(link.lanes);
    writer.put(megabytes_of(link.gigabytes_per_s));
  }
  return writer.take();
}

// A peer's outline, part by part. Whether the parts make a machine, topology::check says.
class OutlineReader {
 public:
  explicit OutlineReader(std::span<const std::uint8_t> message) : reader_(message) {}

  std::optional<Topology> read() {
    std::uint32_t version = 0, nodes = 0, links = 0;
    Topology made;
    if (!reader_.get(version) || version != outline_version || !reader_.get(nodes) || nodes < 1 ||
        nodes > max_outlined_nodes)
      return std::nullopt;
    for (std::uint32_t i = 0; i < nodes; ++i)
      if (!get(made.nodes.emplace_back())) return std::nullopt;
    if (!reader_.get(links) || links > max_outlined_links) return std::nullopt;
    for (std::uint32_t i = 0; i < links; ++i)
      if (!get(made.links.emplace_back())) return std::nullopt;
    if (!reader_.at_end()) return std::nullopt;
    return made;
  }

 private:
  bool get(TopologyNode& node) {
    std::uint8_t kind = 0, parts = 0;
    if (!reader_.get(kind) || kind >= topology::node_kind_count) return false;
    node.kind = static_cast<NodeKind>(kind);
    if (!is_in_outline(node.kind) || !reader_.get(node.parent) || !get_number(node.number, -1) ||
        !get_megabytes(node.gigabytes_per_s) || !get_name(node.bus_id) || !reader_.get(parts))
      return false;
    // A GPU has its part, a port too, and nothing else has those.
    const int needed =
        (node.kind == NodeKind::gpu ? has_gpu : 0) | (node.kind == NodeKind::port ? has_port : 0);
    if ((parts & ~has_processor) != needed) return false;
    return ((parts & has_processor) == 0 || get(node.processor.emplace())) &&
           ((parts & has_gpu) == 0 || get(node.gpu.emplace())) &&
           ((parts & has_port) == 0 || get(node, node.port.emplace()));
  }

  bool get(topology::ProcessorModel& processor) {
    return get_name(processor.vendor) && get_number(processor.family, 0) &&
           get_number(processor.model, 0);
  }

  bool get(topology::GpuTraits& gpu) {
    std::uint8_t reaches = 0;
    if (!get_number(gpu.capability, 0) || !reader_.get(reaches) || reaches > 1) return false;
    gpu.nic_reaches = reaches != 0;
    return true;
  }

  bool get(TopologyNode& node, topology::PortTraits& port) {
    std::uint8_t flags = 0;
    if (!get_name(node.name) || !get_number(port.number, 0) || !reader_.get(flags) ||
        (flags & ~(has_verbs | port_reaches_gpus)) != 0)
      return false;
    port.has_verbs = (flags & has_verbs) != 0;
    port.nic_reaches_gpus = (flags & port_reaches_gpus) != 0;
    return true;
  }

  bool get(TopologyLink& link) {
    std::uint8_t kind = 0;
    if (!reader_.get(link.from) || !reader_.get(link.to) || !reader_.get(kind) ||
        kind > static_cast<std::uint8_t>(topology::JointKind::c2c) || !get_number(link.lanes, 1) ||
        !get_megabytes(link.gigabytes_per_s))
      return false;
    link.kind = static_cast<topology::JointKind>(kind);
    return true;
  }

  bool get_number(int& number, int least) {
    return reader_.get(number) && number >= least && number <= max_number;
  }

  bool get_megabytes(double& gigabytes_per_s) {
    std::uint32_t megabytes = 0;
    if (!reader_.get(megabytes) || megabytes > max_megabytes_per_s) return false;
    gigabytes_per_s = static_cast<double>(megabytes) / 1000;
    return true;
  }

  // Logs show it.
  bool get_name(std::string& name) {
    return reader_.get_text(name, max_device_name) &&
           std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
  }

  trust::Reader reader_;
};

Status fingerprint(std::span<const std::uint8_t> message, MachineNote& note) {
  return trust::derive(message, "machine", note.fingerprint);
}

}  // namespace

std::string encode(const MachineNote& note) {
  return trust::hexadecimal(note.fingerprint) + (note.has_several_ways ? "+" : "-");
}

std::optional<MachineNote> read_machine_note(std::string_view text) {
  MachineNote note;
  if (text.size() != 2 * note.fingerprint.size() + 1) return std::nullopt;
  constexpr std::string_view digits = "0123456789abcdef";
  for (std::size_t i = 0; i < note.fingerprint.size(); ++i) {
    const std::size_t high = digits.find(text[2 * i]), low = digits.find(text[2 * i + 1]);
    if (high == digits.npos || low == digits.npos) return std::nullopt;
    note.fingerprint[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  if (text.back() != '+' && text.back() != '-') return std::nullopt;
  note.has_several_ways = text.back() == '+';
  return note;
}

// What peers would refuse is not told to them: a name with a blank, or too many parts.
Result<OutlinedMachine> outline_machine(const Topology& machine) {
  OutlinedMachine made{topology::outline(machine), {}, {}};
  made.message = encode_outline(made.outline);
  GYRE_TRY(decode_outline(made.message).status());
  GYRE_TRY(fingerprint(made.message, made.note));
  made.note.has_several_ways = topology::has_several_ways(made.outline);
  return made;
}

Result<bool> is_announced(std::span<const std::uint8_t> message, const MachineNote& note) {
  MachineNote seen;
  GYRE_TRY(fingerprint(message, seen));
  return seen.fingerprint == note.fingerprint;
}

Result<Topology> decode_outline(std::span<const std::uint8_t> message) {
  if (message.size() > max_outline_bytes)
    return invalid_argument(fmt::format("its description has {} bytes; the most are {}",
                                        message.size(), max_outline_bytes));
  std::optional<Topology> made = OutlineReader(message).read();
  if (!made)
    return invalid_argument(
        fmt::format("its description of {} bytes is malformed", message.size()));
  GYRE_TRY(check(*made));
  return std::move(*made);
}

}  // namespace gyre::comm
