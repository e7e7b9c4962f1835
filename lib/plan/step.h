// Step: one act of a collective, "reduce these sources into these destinations", as data. Shared
// with device code: plain values only, no allocation, no exceptions, nothing from base. Words: a
// chunk is a share of the data; a plan counts chunks and never bytes. A link is a FIFO of slots to
// and from one peer on one channel. A lane is the list of steps that one worker runs in order,
// again in each round. A verb (recv, reduce, store, send) follows from a step's fields and is
// stored nowhere.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define GYRE_HOST_DEVICE __host__ __device__
#else
#define GYRE_HOST_DEVICE
#endif

namespace gyre::plan {

inline constexpr std::uint32_t max_steps = 64;         // of a lane
inline constexpr std::uint32_t max_chunks = 1U << 30;  // so that index + stride never overflows

// Where a chunk lies. Scratch belongs to the communicator and is used again in every round.
enum class Buffer : std::uint8_t { none, input, output, scratch };

struct Link {
  std::int32_t peer = 0;
  std::int32_t channel = 0;

  GYRE_HOST_DEVICE friend constexpr bool operator==(const Link& a, const Link& b) {
    return a.peer == b.peer && a.channel == b.channel;
  }
  GYRE_HOST_DEVICE friend constexpr bool operator<(const Link& a, const Link& b) {
    return a.peer != b.peer ? a.peer < b.peer : a.channel < b.channel;
  }
};

// Links first, first + 1, ... (count of them) of a lane, modulo the number of its links.
// The next repeat begins `stride` further.
struct LinkRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::int16_t stride = 0;
};

// Repeat i works on base + (first + i * stride + k) mod wrap, for each k < span.
struct Chunks {
  std::uint32_t base = 0;
  std::uint32_t first = 0;
  std::int32_t stride = 0;
  std::uint32_t repeat = 1;
  std::uint32_t span = 1;
  std::uint32_t wrap = 1;
};

namespace step_flag {
inline constexpr std::uint16_t finish = 1;       // the last reduction: the post-op belongs here
inline constexpr std::uint16_t paired = 2;       // repeat i of this step, then i of the next
inline constexpr std::uint16_t pack = 4;         // all repeats are one move and one message
inline constexpr std::uint16_t always_send = 8;  // even without bytes: a token
inline constexpr std::uint16_t staged = 16;      // never delivered in place, see Delivery
}  // namespace step_flag

struct Step {
  Buffer local = Buffer::none;  // the own operand
  Buffer store = Buffer::none;
  std::uint16_t flags = 0;
  std::int16_t recv_stride = 0;
  std::int16_t send_stride = 0;
  std::uint32_t recv_first = 0;
  std::uint32_t recv_count = 0;
  std::uint32_t send_first = 0;
  std::uint32_t send_count = 0;
  Chunks chunks;

  GYRE_HOST_DEVICE constexpr LinkRange recv() const {
    return {recv_first, recv_count, recv_stride};
  }
  GYRE_HOST_DEVICE constexpr LinkRange send() const {
    return {send_first, send_count, send_stride};
  }

  GYRE_HOST_DEVICE constexpr bool receives() const { return recv_count > 0; }
  GYRE_HOST_DEVICE constexpr bool reduces() const {
    return recv_count + (local != Buffer::none ? 1U : 0U) > 1;
  }
  GYRE_HOST_DEVICE constexpr bool stores() const { return store != Buffer::none; }
  GYRE_HOST_DEVICE constexpr bool sends() const { return send_count > 0; }

  GYRE_HOST_DEVICE constexpr bool has(std::uint16_t flag) const { return (flags & flag) != 0; }
  GYRE_HOST_DEVICE constexpr bool finishes() const { return has(step_flag::finish); }
  GYRE_HOST_DEVICE constexpr bool paired() const { return has(step_flag::paired); }
  GYRE_HOST_DEVICE constexpr bool packed() const { return has(step_flag::pack); }
  GYRE_HOST_DEVICE constexpr bool always_sends() const { return has(step_flag::always_send); }

  // In one round.
  GYRE_HOST_DEVICE constexpr std::uint32_t moves() const { return packed() ? 1 : chunks.repeat; }
  GYRE_HOST_DEVICE constexpr std::uint32_t repeats_of_move() const {
    return packed() ? chunks.repeat : 1;
  }

  // A message is as long as the buffer that the step touches.
  GYRE_HOST_DEVICE constexpr Buffer sized_by() const {
    return local != Buffer::none ? local : store;
  }
};
static_assert(sizeof(Step) == 48 && std::is_trivially_copyable_v<Step>);
static_assert(sizeof(Link) == 8 && std::is_trivially_copyable_v<Link>);

// How the direct protocol delivers the messages of a step.
enum class Delivery : std::uint8_t {
  staged,  // through a slot
  pull,    // the receiver reads them where they lie, in the sender's input or output
  push,    // the sender writes them where they belong, in the receiver's output
};

// A value that exists nowhere but here must cross a slot; one that lies in a user buffer as it is
// can be read there; one that is final can be written where it ends. verify shows that each plan
// keeps what this needs: see Plan::direct and Plan::direct_in_place. Three things it leaves to who
// runs the plan: a pre-op changes the input on its way out, so with one nothing is pulled from
// there; in place, a copy of a chunk onto itself must be left out, since a peer may be reading it;
// and in an all-to-all the two ends number a chunk differently, so a puller asks the sender where.
GYRE_HOST_DEVICE constexpr Delivery delivery(const Step& step) {
  if (!step.sends() || step.chunks.span == 0 || step.has(step_flag::staged)) {
    return Delivery::staged;
  }
  if (step.receives()) {
    return !step.reduces() || step.finishes() ? Delivery::push : Delivery::staged;
  }
  const bool in_user_buffer = step.local == Buffer::input || step.local == Buffer::output;
  return in_user_buffer && !step.finishes() ? Delivery::pull : Delivery::staged;
}

// A lane as its interpreter sees it. Owns nothing; the Plan does.
struct Lane {
  const Link* links = nullptr;  // ascending
  const Step* steps = nullptr;
  std::uint32_t link_count = 0;
  std::uint32_t step_count = 0;
  std::uint32_t own_place = 0;  // links whose peer is below this rank: operands before the own one
  // One link to each other rank. A step that takes from all of them, or sends to all, can be
  // carried out by a multicast group where it is delivered directly.
  bool leads_to_all = false;
};
static_assert(std::is_trivially_copyable_v<Lane>);

}  // namespace gyre::plan
