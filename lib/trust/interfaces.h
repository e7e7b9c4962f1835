// The network interfaces of this host, and the choice of the one that a process listens on.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/address.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::trust {

struct Interface {
  std::string name;
  SocketAddress address;  // port 0
  bool loopback = false;
};
// Interfaces that are up, one entry for each address: the IPv4 ones, then the IPv6 ones. IPv6
// link-local addresses are left out, since they mean nothing without the listener's own interface
// number. Another thread may close any descriptor meanwhile: then this fails with EBADF.
Result<std::vector<Interface>> list_interfaces();

// GYRE_SOCKET_IFNAME's grammar: comma list of prefixes, after = of whole names, after ^ of those to
// leave out (^= whole names).
bool interface_matches(std::string_view wanted, std::string_view name);
// The first that fits; without a wish the first that is neither loopback nor a container bridge,
// then any that is not loopback, then loopback. An error names what was there.
Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view wanted,
                                   std::string_view family);

}  // namespace gyre::trust
