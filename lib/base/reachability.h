// Reachability: whether one rank reaches another over one transport, and how, or why it does not.
// Links take the first transport that reaches the peer.
#pragma once

#include <string>

namespace gyre {

struct Reachability {
  bool reachable = false;
  bool maps_slots = false;  // both ends see the slots as plain memory
  std::string reason;       // why it is so; always set when not reachable
};

}  // namespace gyre
