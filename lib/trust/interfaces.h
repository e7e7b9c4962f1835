// The network interfaces of this host, and the choice of the one that a process listens on.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/address.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::trust {

struct Interface {
  std::string name;
  SocketAddress address;  // port 0
  bool loopback = false;
  bool has_carrier = true;  // bytes can leave
  int megabits_per_s = 0;   // 0: not known
};
// Interfaces that are up, one entry for each address: the IPv4 ones, then the IPv6 ones. IPv6
// link-local addresses are left out, since they mean nothing without the listener's own interface
// number. Another thread may close any descriptor meanwhile: then this fails with EBADF.
Result<std::vector<Interface>> list_interfaces();

// How fast the interface with that address is ("10.0.0.1:4711"; the port does not matter), in 10^6
// bits per second; 0: nobody knows.
int interface_megabits_per_s(std::string_view address);

// GYRE_SOCKET_IFNAME's grammar: comma list of prefixes, after = of whole names, after ^ of those to
// leave out (^= whole names).
bool interface_matches(std::string_view wanted, std::string_view name);
// Where other hosts are to reach this process. Of those that have a carrier: the first that is
// wanted by its name; else the fastest that is neither loopback nor a bridge of containers on this
// host, or the first of these if the speed of one is not known. An error names what was there.
Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view wanted,
                                   std::string_view family);
// That one, and after it the others that are wanted by their names, in the machine's order: each
// name once, with addresses of the first's family. `most` of them at most.
Result<std::vector<Interface>> choose_interfaces(std::span<const Interface> interfaces,
                                                 std::string_view wanted, std::string_view family,
                                                 std::size_t most);
// docker0, virbr0 and the like, by their usual names: other hosts may have the same addresses.
bool is_container_bridge(std::string_view name);

}  // namespace gyre::trust
