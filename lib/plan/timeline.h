// Timeline: which messages the plans of all ranks exchange, and when, if each message takes the
// same time. It counts messages; it does not know what one costs on a real path.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/cursor.h"
#include "lib/plan/plan.h"

#include <cstdint>
#include <span>
#include <vector>

namespace gyre::plan {

// One message on its way.
struct MessageInTransit {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t channel = 0;
  Delivery delivery = Delivery::staged;
  std::uint64_t sent = 0;      // when the sender's move began
  std::uint64_t received = 0;  // when the receiver's did
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> chunks;
  // One of those that a switch would sum, or spread, for one move; see multicast.h.
  bool summed = false, spread = false;
  bool first_sent = true, first_received = true;  // of its move's messages
};

struct Timeline {
  std::vector<MessageInTransit> flights;  // in the order in which they are received
  std::uint64_t end = 0;  // when the last message has arrived, or the last move is over
};

// `total_bytes` in even chunks, each one piece: a single round. All ranks are the same size.
Geometry even_geometry(const Plan& plan, std::uint64_t total_bytes);

// A message arrives 1 after its move began; a lane is busy with a move for `move_time`: with 0, the
// end is the longest chain of messages. FIFOs have no limit.
Result<Timeline> timeline(std::span<const Plan> plans, std::uint64_t total_bytes,
                          std::uint64_t move_time);

}  // namespace gyre::plan
