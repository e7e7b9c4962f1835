// Reach: how well one rank reaches another over one transport, in numbers, or why it does not.
// Selection, the tuner's cost and the simulator read these same numbers.
#pragma once

#include <string>

namespace gyre {

struct Reach {
  bool reachable = false;
  double gigabytes_per_s = 0;     // 10^9 bytes a second, one direction, one connection
  double latency_us = 0;          // first byte out to first byte seen
  double overhead_us = 0;         // processor time per message, sender plus receiver
  bool maps_slots = false;        // both ends see the slots as plain memory
  bool maps_user_memory = false;  // one end can read and write the other's buffers (direct)
  std::string reason;             // why it is so; always set when not reachable
};

}  // namespace gyre
