// PlannedPorts: the NIC ports of this host that a search for rings has for the links of a rank. The
// rank at the other end has as many, in the same order (transport::LinkKey::ports).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gyre::comm {

struct PlannedPorts {
  std::vector<std::string> out, in;  // for what goes to the peer, and for what comes from it
  friend bool operator==(const PlannedPorts&, const PlannedPorts&) = default;
};
using PortsByPeer = std::map<int, PlannedPorts>;

}  // namespace gyre::comm
