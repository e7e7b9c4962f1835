// Topology: what one host is made of and how its parts are joined, as a value. Discovery fills it
// in (discover.h), files keep it (hwloc_xml.h, nccl_xml.h), and searches read it.
//
//   node   a part of the host. Nodes form a tree: a core lies in a cache, that in a NUMA node, that
//          in a package, that in the host; a GPU lies below PCIe switches, they below a NUMA node.
//   link   joins two nodes beside the tree: NVLink between GPUs and switches, CPU to GPU by C2C.
//
// Bandwidths are in 10^9 bytes per second and one direction; 0 means that nobody knows.
#pragma once

#include "lib/base/status.h"
#include "lib/topology/processor_set.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::topology {

enum class NodeKind : std::uint8_t {
  host,
  package,
  numa_node,
  cache,  // that several cores share; which one is its level
  core,
  pci_switch,
  gpu,
  nic,   // a PCI device, or one without a place on the bus
  port,  // of a nic: what a program opens, by its name
  nv_switch,
};
inline constexpr int node_kind_count = 10;
std::string_view kind_name(NodeKind kind);  // "NUMA node"

// Who made a package's processors, and which they are: the figures of CPUID.
struct ProcessorModel {
  std::string vendor;  // "GenuineIntel"
  int family = 0, model = 0;
  std::string name;  // for people
  friend bool operator==(const ProcessorModel&, const ProcessorModel&) = default;
};

struct GpuTraits {
  int ordinal = -1;          // as NVML counts them
  int capability = 0;        // compute capability: 90 for sm_90; 0: not known
  bool nic_reaches = false;  // a NIC may read and write its memory (GPUDirect RDMA)
  std::string uuid;
  friend bool operator==(const GpuTraits&, const GpuTraits&) = default;
};

enum class PortProtocol : std::uint8_t { unknown, ethernet, infiniband };

struct PortTraits {
  PortProtocol protocol = PortProtocol::unknown;
  bool has_verbs = false;  // opened by libibverbs; else a network interface of the kernel
  bool is_up = true;       // and there is a carrier
  bool is_loopback = false;
  bool is_virtual = false;        // no device behind it: a bridge, a tunnel, a container's end
  int number = 1;                 // of the NIC's ports
  int mtu = 0;                    // bytes; 0: not known
  bool nic_reaches_gpus = false;  // GPUDirect RDMA by this port
  std::string guid;
  std::vector<std::string> addresses;  // of IP, without the prefix's length
  friend bool operator==(const PortTraits&, const PortTraits&) = default;
};

// What UCX says of one of its transports on one device. It assumes 100 Mb/s for interfaces whose
// speed it does not know; such bandwidths count as not known, and latencies that follow from them.
struct UcxTransport {
  std::string transport;                 // "tcp", "rc_mlx5"
  std::string device;                    // "eth0", "mlx5_0:1", "memory"
  double dedicated_gigabytes_per_s = 0;  // of each process
  double shared_gigabytes_per_s = 0;     // of all processes together
  double latency_us = 0;
  double latency_per_endpoint_us = 0;  // more for each connection
  double overhead_us = 0;              // of a message, on the processor
  double gigabytes_per_s() const { return dedicated_gigabytes_per_s + shared_gigabytes_per_s; }
  friend bool operator==(const UcxTransport&, const UcxTransport&) = default;
};

struct TopologyNode {
  NodeKind kind = NodeKind::host;
  int parent = -1;             // its index, below this node's own; -1 of the host alone
  int number = -1;             // as the kernel counts packages, NUMA nodes and cores; -1: not known
  int level = 0;               // of a cache: 2 or 3
  std::string name;            // of the host, of a port ("mlx5_0", "eth0")
  std::string bus_id;          // of PCI devices: "0000:3b:00.0"
  ProcessorSet processors;     // of the host and what lies in it down to cores
  std::uint64_t bytes = 0;     // of a NUMA node's memory, of a cache
  double gigabytes_per_s = 0;  // to its parent; of a port: of the wire
  std::optional<ProcessorModel> processor;  // of packages; of NUMA nodes if those are unknown
  std::optional<GpuTraits> gpu;
  std::optional<PortTraits> port;
  std::vector<UcxTransport> ucx;  // of ports; of the host those on devices that are no port
  friend bool operator==(const TopologyNode&, const TopologyNode&) = default;
};

enum class JointKind : std::uint8_t { nvlink, c2c };

struct TopologyLink {
  int from = 0, to = 0;  // nodes, `from` the lower index; both directions
  JointKind kind = JointKind::nvlink;
  int lanes = 1;               // NVLinks side by side
  double gigabytes_per_s = 0;  // of all lanes together
  friend bool operator==(const TopologyLink&, const TopologyLink&) = default;
};

struct Topology {
  std::vector<TopologyNode> nodes;  // the host first, every node after its parent
  std::vector<TopologyLink> links;
  // What discovery could not find out, a sentence each, for people. Not part of the machine.
  std::vector<std::string> missed;

  int add(TopologyNode node);  // its index
  const TopologyNode& node(int index) const { return nodes[static_cast<std::size_t>(index)]; }
  std::vector<std::vector<int>> children() const;  // of every node, by its index
  std::vector<int> all(NodeKind kind) const;
  // The nearest node of that kind above this one, itself included; -1 if there is none.
  int above(int index, NodeKind kind) const;
  // -1 if there is none; every bus id but an empty one is there once.
  int find_bus_id(std::string_view bus_id) const;

  // Two topologies are equal if their machines are.
  friend bool operator==(const Topology& a, const Topology& b) {
    return a.nodes == b.nodes && a.links == b.links;
  }
};

// A host of which nothing is known but its processors.
Topology flat_topology(std::string host, const ProcessorSet& processors);

// Whether it is one: nodes in an order and below kinds that make sense, processors inside of their
// parents', names and bus ids once, figures that are numbers. The error names the node.
Status check(const Topology& topology);
// "GPU 0000:3b:00.0", "core 3", for errors and people.
std::string node_text(const TopologyNode& node);
// Of a port as transports name theirs: "mlx5_0:1" with verbs (RdmaPort::name), else "eth0".
std::string port_name(const TopologyNode& port);
// A bus id as the kernel writes it: small letters, four digits of the domain.
std::string kernel_bus_id(std::string_view text);

inline constexpr int max_nodes = 65536;

}  // namespace gyre::topology
