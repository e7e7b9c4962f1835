// The bandwidth of a link of which only the kind is known, and of a port from what is known of it,
// in 10^9 bytes per second and one direction.
#pragma once

#include "lib/topology/topology.h"

#include <cstdint>
#include <string_view>

namespace gyre::topology {

// The kernel and NCCL give the rate of a port in bits, verbs devices in 10^9 bits.
inline constexpr double megabits_per_gigabyte = 8000, gigabits_per_gigabyte = 8;

// PCIe by its rate and width: 8b/10b code up to 5 GT/s, 128b/130b from 8 GT/s on, and 242 of 256
// bytes of a flit from 64 GT/s on (PCI Express Base Specification 6.0). Headers of packets are not
// counted. 0 if either is unknown.
double pci_gigabytes_per_s(double gigatransfers_per_s, int lanes);

// One NVLink of a GPU of that compute capability, as NCCL counts it after protocol
// (NCCL 2.30, src/graph/topo.h); 0 if it is unknown.
double nvlink_gigabytes_per_s(int capability);

// Between the packages of a host: the link that NCCL assumes for that processor (the same file); 0
// if it is unknown.
double interconnect_gigabytes_per_s(const ProcessorModel& processor);

// Who says how wide something is.
enum class FigureSource : std::uint8_t { known, ucx, assumed };
std::string_view source_suffix(FigureSource source);  // "", " (by UCX)", " (assumed)"

struct PortSpeed {
  double gigabytes_per_s = 0;
  FigureSource source = FigureSource::assumed;
};
// Of the wire, as the kernel or a file says; else of UCX's best transport, without the headers of
// packets; else a careful figure.
PortSpeed port_speed(const TopologyNode& port);

}  // namespace gyre::topology
