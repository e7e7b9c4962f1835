// The parameters that an executor gives a kernel: plans, buffers, geometry and the ends of links,
// by pointers that the device can follow. They are trivially copyable and go by value into the
// launch. A CUDA graph may replay them, so everything that changes from call to call is in memory
// that kernels advance. A block walks a lane. Blocks wait for each other and for peers, so all
// lanes of all ranks run at the same time: an executor launches no more of them than the device
// holds.
#pragma once

#include "kernels/cuda/device.h"
#include "lib/base/element.h"
#include "lib/plan/cursor.h"
#include "lib/transport/slots.h"

#include <type_traits>

namespace gyre::cuda {

inline constexpr std::uint32_t max_links = 128;    // of a lane
inline constexpr std::uint32_t max_channels = 16;  // of a launch
// Of a block; whole warps, two or more. 384 leave each thread 168 registers, enough for no spills.
inline constexpr std::uint32_t max_threads = 384;

// Where a user buffer lies that is lent to another process: the number of its region, which both
// know, and the offset in it. Numbers are never used again; a peer keeps what it has opened of
// another one's in a table, at the number's last bits.
struct DevicePlace {
  std::uint64_t region = 0;  // none: nothing is lent there
  std::uint64_t offset = 0;
};
inline constexpr std::uint64_t max_regions = 256;  // of one rank, at one time
// Of what is lent within a process: the offset is the address. It is the number of no region, as
// those begin with `max_regions`.
inline constexpr std::uint64_t region_of_addresses = 1;

// A peer's region as this rank has it mapped. In this rank's device memory; the host writes it
// while kernels run, the number last, and before the peer lends any of it.
struct DeviceRegion {
  std::uint64_t number = 0;  // none
  std::uint64_t begin = 0;   // an address of this process
  std::uint64_t bytes = 0;
};

// A user buffer lent to the other end for one call: the receiver's output, or the sender's input.
// Written by the lender, in memory of the other end; `sequence` last, by a release.
struct DeviceGrant {
  std::uint64_t sequence = 0;  // of the call, + 1
  std::uint64_t region = 0;    // none: nothing is lent, use slots
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// This rank's end of one way of a link, for one protocol. All memory begins zeroed. Where it lies
// is the executor's choice: what an end polls belongs into its own device's memory.
struct DeviceEnd {
  // Messages (simple) or lines (ll, ll128) sent or received by this end. Only its lane's block
  // touches it, and puts it back when the call ends.
  std::uint64_t* next = nullptr;
  // Written by this end and read by the other: messages committed, or lines if the link is to the
  // own rank (sender); messages or lines released (receiver).
  std::uint64_t* told = nullptr;
  const std::uint64_t* heard = nullptr;    // the other end's `told`
  std::byte* ring = nullptr;               // slots or lines, shared with the other end
  transport::SlotHeader* notes = nullptr;  // simple: one for each slot
  // Direct, and null without: both ends have them, or neither does.
  DeviceGrant* lent = nullptr;            // by this end, lies with the other
  const DeviceGrant* borrowed = nullptr;  // by the other end, lies here
  // The other end's regions, `max_regions` of them; null: it is of this process, or its own rank.
  const DeviceRegion* regions = nullptr;
};

// The ends of a lane's links, by link; an end that the lane never uses stays empty.
struct DeviceLane {
  plan::Lane lane;
  std::uint32_t channel = 0;
  const DeviceEnd* send = nullptr;
  const DeviceEnd* receive = nullptr;
};

enum class Outcome : std::uint32_t {
  done,
  aborted,   // the abort word was set
  late,      // a wait took longer than `patience_ns`
  mismatch,  // a peer's message belongs to another call
};

// How a launch went, in the host's memory; the first thread that stops tells. `what` says what it
// waited for.
struct DeviceStatus {
  Outcome outcome = Outcome::done;
  WaitingFor what = WaitingFor::nothing;
  std::uint32_t block = 0;
  std::int32_t peer = -1;  // at the other end of the link
  std::uint64_t told = 0;  // 1 from when the rest is written on, which a release says
};

// What kernels show of themselves while they run, in the host's memory. Written now and then by
// whoever comes by.
struct DeviceProgress {
  // Launches that have begun, and how many of these have ended, modulo 2^32: replays of graphs,
  // which the host does not see, are counted too. A kernel that gives up does not count as ended.
  std::uint32_t started = 0, ended = 0;
  std::uint64_t launched = 0;  // the number of the last launch that has begun; not of replays
  // By the thread that looked last: WaitingFor << 56 | peer << 32 | its looks during this wait.
  std::uint64_t waiting = 0;
};

// What a block has to know of a call, beside its lane and its geometry.
struct LaneCall {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;  // of channel 0
  std::uint64_t scratch_stride = 0;
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;

  // NVLink multicast: one address for the same place in the buffers of all ranks, from `input` and
  // `output` on. Null without; and where ranks have counts of their own, or sums must be exactly
  // reproducible, since their order is then the switch's.
  const std::byte* everybodys_input = nullptr;
  std::byte* everybodys_output = nullptr;

  // Arithmetic, as kernels/cpu/move.h has it. min and max share a kernel, and so do the bitwise
  // operations, and types that differ in their sign alone.
  ElementType type = ElementType::uint8;
  ReduceOp op = ReduceOp::sum;
  bool scales = false;        // pre_mul_sum: `scalar` multiplies this rank's input
  std::uint64_t scalar = 0;   // one element of the type, in the low bytes
  std::uint32_t divisor = 1;  // avg: at the last reduction
  std::uint32_t element_bytes = 1;

  // Rings: 2^ring_shift slots of `slot_bytes`, a multiple of 128, or lines. Of lines, the longest
  // message takes three quarters at most: receivers give them back by quarters.
  std::uint32_t ring_shift = 1;
  std::uint64_t slot_bytes = 0;

  bool lends = false;  // direct: this rank's buffers may be lent
  // To ranks of other processes only where these name a region.
  DevicePlace input_place, output_place;
  bool pairs = false;  // all-to-all: the two ends number a chunk by each other's rank
  std::uint32_t rank = 0;
  std::uint64_t signature = 0;  // of what all ranks must agree on
  std::uint32_t ordinal = 0;    // among the calls of a launch that ranks count in `sequence`

  const std::uint32_t* abort = nullptr;  // not zero: leave
  // Who makes 1 of it writes the status. In device memory: additions in the host's are whole among
  // threads of a kernel alone, and nothing that the host could wait for.
  std::uint32_t* claim = nullptr;
  // Not zero once a kernel of this rank has given up: later ones leave at once. Their counters are
  // not to be relied on, and relays may still read what it has sent. In device memory.
  std::uint32_t* gave_up = nullptr;
  DeviceStatus* status = nullptr;
  DeviceProgress* progress = nullptr;
  std::uint32_t polls_between_looks = 4096;  // at the abort word and the clock; a power of two
  std::uint64_t patience_ns = 0;             // longest wait; 0: as long as it takes
};

// One lane of a call, and what its block goes on with. Lies where the device reaches it, for as
// long as the launch may come again.
struct DeviceTask {
  const DeviceLane* lane = nullptr;  // null: nothing, and no `then`
  LaneCall call;
  plan::Geometry geometry;
  const DeviceTask* then = nullptr;
};

// What a kernel is launched with: a call whose lanes its blocks walk; or tasks, of several calls of
// one protocol. What goes over one link is one block's, in an order that both ends keep.
struct DeviceLaunch : LaneCall {
  const DeviceLane* lanes = nullptr;  // one for each block
  const DeviceTask* tasks = nullptr;  // instead: one for each block

  std::uint64_t* sequence = nullptr;      // calls so far; the last block to end adds `calls`
  std::uint32_t* blocks_ended = nullptr;  // of this launch; the last one sets it back to zero
  std::uint32_t calls = 1;                // that all ranks count
  std::uint32_t* starts = nullptr;        // launches and replays so far
  std::uint64_t number = 0;               // of the launch, from 1 on; 0: of replays

  // Each channel's stripe of the buffers; tables in device memory.
  plan::Geometry geometries[max_channels];
};
static_assert(std::is_trivially_copyable_v<DeviceLaunch>);

}  // namespace gyre::cuda
