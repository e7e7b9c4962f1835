// simple: bulk bytes in a slot, a note beside it, then a counter. With direct delivery on a link,
// the slot is the peer's user buffer, and the note says so. Final data in the sender's input is
// read there (pull). Final data for the receiver is written to its place in the output (push). See
// plan::delivery.
#pragma once

#include "kernels/cuda/packs.h"

namespace gyre::cuda {

// Whether all of the move's pieces lie within the buffer that the peer says that it lends.
GYRE_DEVICE bool stays_within(const Walk& walk, const plan::Move& move, std::uint64_t bytes,
                              bool in_input) {
  const LaneCall& call = walk.call;
  plan::PieceWalk pieces(move);
  for (plan::Piece piece; pieces.next(piece);) {
    const std::uint64_t begin =
        walk.geometry().place(in_input ? plan::Buffer::input : plan::Buffer::output,
                              call.pairs ? call.rank : piece.chunk, move.round_offset);
    if (begin > bytes || piece.bytes > bytes - begin) return false;
  }
  return true;
}

// Whether this rank's buffer at that place may be lent over the link.
GYRE_DEVICE bool can_lend(const Walk& walk, const DeviceEnd& wired, const DevicePlace& place) {
  return walk.call.lends && wired.lent != nullptr &&
         (wired.regions == nullptr || place.region != 0);
}

// Where the peer's buffer is here, as far as it lies in what this process has opened; else null.
// The peer's word is a number and an offset, both of which may be wrong.
GYRE_DEVICE std::byte* find_in_region(const DeviceEnd& wired, std::uint64_t number,
                                      std::uint64_t offset, std::uint64_t bytes) {
  const DeviceRegion& region = wired.regions[number & (max_regions - 1)];
  if (number == 0 || device::load_relaxed(&region.number) != number) return nullptr;
  const std::uint64_t whole = device::load_relaxed(&region.bytes);
  if (offset > whole || bytes > whole - offset) return nullptr;
  const std::uint64_t begin = device::load_relaxed(&region.begin);
  return begin == 0 ? nullptr : reinterpret_cast<std::byte*>(begin + offset);
}

// What the peer lends for this call; null if nothing, or less than the move touches.
GYRE_DEVICE std::byte* borrowed(const Walk& walk, const plan::Move& move, const DeviceEnd& wired,
                                bool in_input) {
  const auto* words = reinterpret_cast<const std::byte*>(wired.borrowed);
  const std::uint64_t number = device::load_8(words + offsetof(DeviceGrant, region));
  const std::uint64_t offset = device::load_8(words + offsetof(DeviceGrant, offset));
  const std::uint64_t bytes = device::load_8(words + offsetof(DeviceGrant, bytes));
  std::byte* const begin =
      wired.regions != nullptr
          ? find_in_region(wired, number, offset, bytes)
          : reinterpret_cast<std::byte*>(number == region_of_addresses ? offset : std::uint64_t{0});
  if (begin == nullptr || !stays_within(walk, move, bytes, in_input)) return nullptr;
  return begin;
}

struct Simple {
  static constexpr bool waits_while_it_moves = false;

  GYRE_DEVICE static std::uint32_t lines_of(const plan::Move&) { return 0; }

  GYRE_DEVICE static void lend(const Walk& walk, const DeviceEnd& wired, const std::byte* buffer,
                               const DevicePlace& place, std::uint64_t bytes) {
    if (wired.lent == nullptr) return;
    const bool lends = buffer != nullptr && can_lend(walk, wired, place);
    const bool by_address = wired.regions == nullptr;
    auto* words = reinterpret_cast<std::byte*>(wired.lent);
    device::store_8(words + offsetof(DeviceGrant, region), !lends       ? 0
                                                           : by_address ? region_of_addresses
                                                                        : place.region);
    device::store_8(words + offsetof(DeviceGrant, offset),
                    by_address ? reinterpret_cast<std::uint64_t>(buffer) : place.offset);
    device::store_8(words + offsetof(DeviceGrant, bytes), bytes);
    // Pairs with the acquire in await_grant of the other end; in open_pulled it is the tail's.
    device::store_release(&wired.lent->sequence, walk.state.sequence + 1);
  }
  GYRE_DEVICE static void open_send(Walk& walk, EndState& end, const DeviceEnd& wired) {
    // Messages of an earlier call may still lie there. Pairs with the release in close_received.
    end.seen = device::load_acquire(wired.heard);
    end.pulled = false;
    lend(walk, wired, walk.call.input, walk.call.input_place, walk.call.input_bytes);
  }
  GYRE_DEVICE static void open_receive(Walk& walk, EndState& end, const DeviceEnd& wired) {
    end.seen = end.next;
    lend(walk, wired, walk.call.output, walk.call.output_place, walk.call.output_bytes);
  }

  GYRE_DEVICE static void await_message(Walk& walk, const plan::Move& move, std::uint32_t,
                                        std::uint32_t link) {
    EndState& end = walk.state.receive[link];
    const DeviceEnd& wired = walk.lane.receive[link];
    std::uint32_t polls = 0;
    while (end.seen == end.next) {
      // Pairs with the release in close_sent. A tail out of bounds is not believed.
      const std::uint64_t tail = device::load_acquire(wired.heard);
      if (tail - end.next <= walk.ring_count()) end.seen = tail;
      if (end.seen == end.next && !walk.poll_again(polls, WaitingFor::data, link)) return;
    }
    const std::uint64_t slot = end.next & walk.ring_mask();
    const Bytes16 note = device::load_16(reinterpret_cast<const std::byte*>(wired.notes + slot));
    const auto delivery = static_cast<transport::DeliveryMode>(note.high >> 32);
    Incoming& incoming = walk.state.incoming[link];
    incoming = {wired.ring + slot * walk.call.slot_bytes, Lies::in_message};
    bool fits = note.low == transport::message_flag(end.next + 1, walk.call.signature) &&
                static_cast<std::uint32_t>(note.high) == move.bytes;
    if (delivery == transport::DeliveryMode::pull) {
      incoming.lies = Lies::in_input;
      fits = fits && open_pulled(walk, move, wired, incoming);
    } else if (delivery == transport::DeliveryMode::push) {
      incoming.lies = Lies::in_output;
      fits = fits && can_lend(walk, wired, walk.call.output_place) &&
             move.step->store == plan::Buffer::output && !move.step->reduces();
    }
    if (!fits) walk.stop(Outcome::mismatch, WaitingFor::data, link);
  }

  GYRE_DEVICE static bool open_pulled(const Walk& walk, const plan::Move& move,
                                      const DeviceEnd& wired, Incoming& incoming) {
    if (wired.borrowed == nullptr) return false;
    // The sender lent before it told of this message.
    if (device::load_relaxed(&wired.borrowed->sequence) != walk.state.sequence + 1) return false;
    incoming.base = borrowed(walk, move, wired, true);
    return incoming.base != nullptr;
  }

  GYRE_DEVICE static void await_credit(Walk& walk, const plan::Move& move, std::uint32_t,
                                       std::uint32_t link) {
    EndState& end = walk.state.send[link];
    const DeviceEnd& wired = walk.lane.send[link];
    std::uint32_t polls = 0;
    while (end.next - end.seen >= walk.ring_count()) {
      // Pairs with the release in close_received. A head out of bounds is not believed.
      const std::uint64_t head = device::load_acquire(wired.heard);
      if (head - end.seen <= end.next - end.seen) end.seen = head;
      if (end.next - end.seen < walk.ring_count()) break;
      if (!walk.poll_again(polls, WaitingFor::credit, link)) return;
    }
    const std::uint64_t slot = end.next & walk.ring_mask();
    Outgoing& outgoing = walk.state.outgoing[link];
    outgoing = {wired.ring + slot * walk.call.slot_bytes, transport::DeliveryMode::staged};
    if (wired.lent == nullptr) return;
    const plan::Delivery wish = plan::delivery(*move.step);
    if (wish == plan::Delivery::pull && move.step->local == plan::Buffer::input &&
        can_lend(walk, wired, walk.call.input_place) && !walk.call.scales) {
      outgoing = {nullptr, transport::DeliveryMode::pull};
      end.pulled = true;
    } else if (wish == plan::Delivery::push && await_grant(walk, wired, link)) {
      std::byte* output = borrowed(walk, move, wired, false);
      if (output != nullptr) outgoing = {output, transport::DeliveryMode::push};
    }
  }

  GYRE_DEVICE static bool await_grant(Walk& walk, const DeviceEnd& wired, std::uint32_t link) {
    // Pairs with the release in lend of the receiver.
    std::uint32_t polls = 0;
    while (device::load_acquire(&wired.borrowed->sequence) != walk.state.sequence + 1)
      if (!walk.poll_again(polls, WaitingFor::grant, link)) return false;
    return true;
  }

  template <typename Reducer>
  GYRE_DEVICE static void perform(Walk& walk, const plan::Move& move, std::uint32_t) {
    plan::PieceWalk pieces(move);
    for (plan::Piece piece; pieces.next(piece);)
      move_piece<Reducer>(walk, operands_of(walk, move, piece));
  }

  // The whole block has moved: what it wrote goes out with the tail, what it read is given back.
  GYRE_DEVICE static void close_sent(Walk& walk, const plan::Move& move, std::uint32_t,
                                     std::uint32_t link) {
    EndState& end = walk.state.send[link];
    const DeviceEnd& wired = walk.lane.send[link];
    const std::uint64_t slot = end.next & walk.ring_mask();
    ++end.next;
    const auto delivery = static_cast<std::uint64_t>(walk.state.outgoing[link].delivery);
    const Bytes16 note{transport::message_flag(end.next, walk.call.signature),
                       move.bytes | delivery << 32};
    device::store_16(reinterpret_cast<std::byte*>(wired.notes + slot), note);
    // Pairs with the acquire in await_message.
    device::store_release(wired.told, end.next);
  }
  GYRE_DEVICE static void close_received(Walk& walk, std::uint32_t, std::uint32_t link) {
    EndState& end = walk.state.receive[link];
    // Pairs with the acquires in await_credit and finish_send.
    device::store_release(walk.lane.receive[link].told, ++end.next);
  }

  // The input may change when the kernel has ended: peers that read it there have done so.
  GYRE_DEVICE static void finish_send(Walk& walk, std::uint32_t link) {
    EndState& end = walk.state.send[link];
    std::uint32_t polls = 0;
    while (end.pulled && end.seen != end.next) {
      const std::uint64_t head = device::load_acquire(walk.lane.send[link].heard);
      if (head - end.seen <= end.next - end.seen) end.seen = head;
      if (end.seen != end.next && !walk.poll_again(polls, WaitingFor::drain, link)) return;
    }
  }
  GYRE_DEVICE static void finish_receive(Walk&, std::uint32_t) {}
};

}  // namespace gyre::cuda
