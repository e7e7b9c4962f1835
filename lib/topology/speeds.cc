#include "lib/topology/speeds.h"

namespace gyre::topology {

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

}  // namespace gyre::topology
