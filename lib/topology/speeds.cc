#include "lib/topology/speeds.h"

#include <algorithm>
#include <array>

namespace gyre::topology {
namespace {

// Of a port whose speed nobody knows, in 10^9 bytes per second: 10 Gb/s.
constexpr double unknown_port = 1.25;

}  // namespace

double pci_gigabytes_per_s(double gigatransfers_per_s, int lanes) {
  const double share = gigatransfers_per_s < 8    ? 8.0 / 10
                       : gigatransfers_per_s < 64 ? 128.0 / 130
                                                  : 242.0 / 256;
  return gigatransfers_per_s * share * lanes / 8;
}

double nvlink_gigabytes_per_s(int capability) {
  struct Generation {
    int capability;  // from this one on
    double gigabytes_per_s;
  };
  // sm_86 has 4 links of 14 GB/s; the newest first.
  constexpr Generation generations[] = {{100, 40.1}, {90, 20.6}, {87, 20.0},
                                        {86, 12.0},  {70, 20.0}, {60, 18.0}};
  for (const Generation& one : generations)
    if (capability >= one.capability) return one.gigabytes_per_s;
  return 0;
}

double interconnect_gigabytes_per_s(const ProcessorModel& processor) {
  struct Maker {
    const char* vendor;
    int family, model;  // from these on; the newest first
    double gigabytes_per_s;
  };
  // Intel: Emerald Rapids, Sapphire Rapids, Skylake, Broadwell. AMD: Zen 5, Zen 3, Zen 1.
  constexpr Maker makers[] = {{"GenuineIntel", 6, 0xcf, 40}, {"GenuineIntel", 6, 0x8f, 22},
                              {"GenuineIntel", 6, 0x55, 10}, {"GenuineIntel", 6, 0, 6},
                              {"AuthenticAMD", 26, 0, 32},   {"AuthenticAMD", 25, 0, 24},
                              {"AuthenticAMD", 23, 0, 16}};
  for (const Maker& one : makers)
    if (processor.vendor == one.vendor &&
        (processor.family > one.family ||
         (processor.family == one.family && processor.model >= one.model)))
      return one.gigabytes_per_s;
  return 0;
}

std::string_view source_suffix(FigureSource source) {
  constexpr std::array<std::string_view, 3> suffixes = {"", " (by UCX)", " (assumed)"};
  return suffixes[static_cast<std::size_t>(source)];
}

PortSpeed port_speed(const TopologyNode& port) {
  if (port.gigabytes_per_s > 0) return {port.gigabytes_per_s, FigureSource::known};
  double best = 0;
  for (const UcxTransport& one : port.ucx) best = std::max(best, one.gigabytes_per_s());
  return best > 0 ? PortSpeed{best, FigureSource::ucx}
                  : PortSpeed{unknown_port, FigureSource::assumed};
}

}  // namespace gyre::topology
