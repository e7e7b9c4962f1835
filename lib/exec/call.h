// A collective as the host's executor takes it: a plan whose links are joined, and one call of it.
#pragma once

#include "lib/base/element.h"
#include "lib/exec/output_pace.h"
#include "lib/exec/port.h"
#include "lib/exec/work_stealing.h"
#include "lib/plan/cursor.h"
#include "lib/plan/plan.h"
#include "lib/plan/protocol.h"

#include <cstdint>
#include <vector>

namespace gyre::exec {

using plan::Protocol;

class ShortRun;

// A plan whose links are joined. Made once per plan and communicator; a Launch borrows it.
struct BoundPlan {
  struct LaneEnds {
    plan::Lane lane;
    std::vector<SendPort*> send;  // by the lane's link index; null where the lane never sends
    std::vector<ReceivePort*> recv;
    StealableStep shared;
  };
  std::vector<LaneEnds> lanes;
  // Each port once: all that a Launch must progress, flush and grant.
  std::vector<SendPort*> send_ports;
  std::vector<ReceivePort*> receive_ports;
  std::vector<plan::Stored> stored;  // by receive port: how much of what comes there
  std::int32_t rank = -1;            // whose plan it is, where that is known
  bool direct = false;               // messages may stay in user buffers
  bool direct_in_place = false;      // even if input and output are one buffer
};

struct Call {
  plan::Geometry geometry;
  const std::byte* input = nullptr;  // null where this rank brings nothing
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;
  transport::RegionPlace input_place;  // for peers that map this process's regions
  transport::RegionPlace output_place;
  ElementType type = ElementType::uint8;
  ReduceOp op = ReduceOp::sum;
  const void* pre_scalar = nullptr;  // pre_mul_sum: multiplies this rank's input
  std::uint32_t divisor = 1;         // avg: at the last reduction
  Protocol protocol = Protocol::simple;
  bool in_place = false;
  bool lends = true;   // direct: messages may stay in user buffers
  bool pairs = false;  // all-to-all: the two ends number a chunk by each other's rank
  std::uint32_t rank = 0;
  bool streamed = false;        // the output leaves past the cache
  OutputPace* pace = nullptr;   // that says so, and is told how long moves take; null: none does
  std::uint64_t sequence = 0;   // of the call on its communicator
  std::uint64_t signature = 0;  // of what all ranks must agree on
  // Bound to this kind of call. Null: none is, and calls of the line protocol bind one.
  ShortRun* short_run = nullptr;
};

}  // namespace gyre::exec
