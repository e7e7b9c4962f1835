// The common part of the protocols: the state of a block on its walk through a lane, which thread
// serves which link, and how a wait that would never end is stopped.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reducer.h"

namespace gyre::cuda {

// Where a move's operand lies that came in over a link.
enum class Lies : std::uint32_t {
  in_message,  // piece after piece
  in_input,    // as in the peer's input
  in_output,   // in our output, pushed to its place
};

struct Incoming {
  const std::byte* base;
  Lies lies;
};

struct Outgoing {
  std::byte* base;  // null: nothing to write
  transport::DeliveryMode delivery;
};

struct EndState {
  std::uint64_t next;  // message or line
  std::uint64_t seen;  // of the other end's counter; for a receiver of lines, what it was told last
  bool pulled;         // the peer reads our input during this call
};

// Where a piece's operands lie and its results go, so that the loops over its bytes look nothing up
// but a pointer. A source for each operand, a target for each sending link and one for the store.
struct PiecePlaces {
  const std::byte* sources[max_links + 1];
  std::byte* targets[max_links + 1];  // null: nothing to write
};

// What stands before `send` is the first thread's to write; the rest, by link, the thread's that
// serves it. A barrier lies between a write and a read by another thread.
struct BlockState {
  plan::Cursor cursor;  // here and not in registers, which the moving of bytes needs
  plan::Move moves[2];  // by turns: the next one is found while the block works on this one
  std::uint32_t lines[2];
  bool more[2];
  bool gave_up;            // an earlier kernel, before the task
  DeviceTask task;         // here, as where it comes from is far away
  std::uint64_t sequence;  // of the task's call
  EndState send[max_links];
  EndState receive[max_links];
  Incoming incoming[max_links];
  Outgoing outgoing[max_links];
  PiecePlaces places[2];  // by turns: some threads find the next piece's while others move bytes
};

GYRE_DEVICE bool has_link(const plan::MoveLinks& links, std::uint32_t link) {
  const std::uint32_t straight = links.count - links.wrapped;
  return link < links.wrapped || (link >= links.first && link - links.first < straight);
}

struct Walk {
  const LaneCall& call;
  const DeviceLane& lane;
  BlockState& state;
  bool stopped;  // this thread; the block leaves together at its next meeting
  std::uint64_t since;
  std::uint32_t pieces = 0;  // so far, of the block

  GYRE_DEVICE const plan::Geometry& geometry() const { return state.task.geometry; }
  GYRE_DEVICE std::byte* scratch() const {
    return call.scratch + lane.channel * call.scratch_stride;
  }
  GYRE_DEVICE std::uint64_t ring_mask() const { return (1ULL << call.ring_shift) - 1; }
  GYRE_DEVICE std::uint64_t ring_count() const { return 1ULL << call.ring_shift; }

  GYRE_DEVICE void stop(Outcome outcome, WaitingFor what, std::uint32_t link) {
    stopped = true;
    device::store_relaxed(call.gave_up, std::uint32_t{1});
    if (device::add_acquire_release(call.claim, 1) != 0) return;
    device::store_relaxed(reinterpret_cast<std::uint32_t*>(&call.status->outcome),
                          static_cast<std::uint32_t>(outcome));
    device::store_relaxed(reinterpret_cast<std::uint32_t*>(&call.status->what),
                          static_cast<std::uint32_t>(what));
    device::store_relaxed(&call.status->block, device::block_index());
    device::store_relaxed(reinterpret_cast<std::uint32_t*>(&call.status->peer),
                          static_cast<std::uint32_t>(lane.lane.links[link].peer));
    // Pairs with the acquires in CudaExecutor::take_failed and has_given_up.
    device::store_release(&call.status->told, 1);
  }

  GYRE_DEVICE void show_wait(std::uint32_t polls, WaitingFor what, std::uint32_t link) const {
    const auto peer = static_cast<std::uint64_t>(lane.lane.links[link].peer) & 0xffffff;
    device::show(&call.progress->waiting,
                 static_cast<std::uint64_t>(what) << 56 | peer << 32 | polls);
  }

  // After a poll in vain, the `polls`th of this wait: why to give up, or done for going on. Looks
  // beyond the polled word are rare, as they cost a trip to the host's memory.
  GYRE_DEVICE Outcome look(std::uint32_t polls, WaitingFor what, std::uint32_t link) {
    device::pause(what, link);
    if ((polls & (call.polls_between_looks - 1)) != 0) return Outcome::done;
    show_wait(polls, what, link);
    if (device::load_relaxed(call.abort) != 0) return Outcome::aborted;
    if (call.patience_ns == 0) return Outcome::done;
    const std::uint64_t now = device::clock_ns();
    if (polls == call.polls_between_looks) since = now;
    return now - since > call.patience_ns ? Outcome::late : Outcome::done;
  }

  // Counts the poll; false if this thread has stopped.
  GYRE_DEVICE bool poll_again(std::uint32_t& polls, WaitingFor what, std::uint32_t link) {
    const Outcome outcome = look(++polls, what, link);
    if (outcome == Outcome::done) return true;
    stop(outcome, what, link);
    return false;
  }
};

// What one chunk's part of a move combines, and into what: operands in rank order, the own one at
// its sorted place. The same on every thread of the block.
struct Operands {
  const Walk& walk;
  const plan::Move& move;
  const plan::Piece& piece;
  const std::byte* own;     // null without an own operand
  std::byte* store;         // null without one, or if it holds its value already
  std::uint32_t own_place;  // among the sources
  std::uint32_t sources;
  bool scales;
  bool changes;  // false: bits are copied
  Arithmetic how;

  // Where the peer has this piece in the buffer that it lends.
  GYRE_DEVICE std::uint64_t lent_place(bool in_input) const {
    const LaneCall& call = walk.call;
    return walk.geometry().place(in_input ? plan::Buffer::input : plan::Buffer::output,
                                 call.pairs ? call.rank : piece.chunk, move.round_offset);
  }
  // The place among the move's receiving links of a source that is not the own one.
  GYRE_DEVICE std::uint32_t link_place(std::uint32_t source) const {
    return source < own_place ? source : source - 1;
  }
  GYRE_DEVICE bool is_own(std::uint32_t source) const { return source == own_place; }

  GYRE_DEVICE const std::byte* source(std::uint32_t index) const {
    if (is_own(index)) return own;
    const Incoming& incoming = walk.state.incoming[move.recv[link_place(index)]];
    if (incoming.lies == Lies::in_output) return walk.call.output + piece.store_offset;
    if (incoming.lies == Lies::in_message) return incoming.base + piece.message_offset;
    return incoming.base + lent_place(true);
  }
  // Of the move's sending links, and then the store.
  GYRE_DEVICE std::uint32_t targets() const { return move.send.count + 1; }
  GYRE_DEVICE std::byte* target(std::uint32_t index) const {
    if (index == move.send.count) return store;
    const Outgoing& outgoing = walk.state.outgoing[move.send[index]];
    if (outgoing.base == nullptr) return nullptr;
    if (outgoing.delivery == transport::DeliveryMode::push)
      return outgoing.base + lent_place(false);
    return outgoing.base + piece.message_offset;
  }
};

GYRE_DEVICE Operands operands_of(const Walk& walk, const plan::Move& move,
                                 const plan::Piece& piece) {
  const LaneCall& call = walk.call;
  const plan::Step& step = *move.step;
  const bool has_own = step.local != plan::Buffer::none;
  Operands on{walk, move, piece, nullptr, nullptr, ~0U, move.recv.count, false, false, {}};
  if (has_own) {
    const std::byte* base = step.local == plan::Buffer::input    ? call.input
                            : step.local == plan::Buffer::output ? call.output
                                                                 : walk.scratch();
    on.own = base + piece.local_offset;
    on.own_place = move.recv.below(walk.lane.lane.own_place);
    ++on.sources;
  }
  on.scales = call.scales && step.local == plan::Buffer::input;
  on.how.op = call.op;
  on.how.is_signed = call.type == ElementType::int8 || call.type == ElementType::int32 ||
                     call.type == ElementType::int64;
  on.how.scalar = call.scalar;
  on.how.divisor = step.finishes() ? call.divisor : 1;
  on.changes = on.sources != 1 || on.scales || on.how.divisor != 1;
  if (step.stores()) {
    on.store =
        (step.store == plan::Buffer::output ? call.output : walk.scratch()) + piece.store_offset;
  }
  return on;
}

}  // namespace gyre::cuda
