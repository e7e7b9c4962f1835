// The positions of two GPUs in the PCI tree. Input: two paths, a line each.
#include "tests/fuzz/input.h"
#include "transports/p2p/bus.h"

#include <string_view>

namespace bus_fuzz {

using namespace gyre;

int take_input(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view here = text.substr(0, end);
  const std::string_view there = text.substr(std::min(end + 1, text.size()));
  for (const int node : {p2p::no_numa_node, 0, 1}) {
    const p2p::Path path = p2p::path_between(here, there, 0, node);
    GYRE_DEMAND(path == p2p::path_between(there, here, node, 0));
    GYRE_DEMAND(path != p2p::Path::same && path != p2p::Path::nvlink);
  }
  // Nothing lies between a device and itself, but what both are behind.
  const p2p::Path own = p2p::path_between(here, here, 0, 0);
  GYRE_DEMAND(own == p2p::Path::unknown || own == p2p::Path::one_switch);
  return 0;
}

GYRE_FUZZ_TARGET(bus)

}  // namespace bus_fuzz
