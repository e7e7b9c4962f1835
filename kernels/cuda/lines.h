// The common part of ll and ll128: payload and flag arrive together in lines of a ring. So a
// receiver needs no counter, except on a link to its own rank (is_self). The sender waits for a
// counter of credit, which comes back by quarters of the ring. Lines have running numbers, and
// every line is written in every lap. So a flag that is not of this lap is of the one before. Each
// piece of a message begins a line of its own; a token is an empty line.
#pragma once

#include "kernels/cuda/bytes.h"
#include "kernels/cuda/walk.h"

namespace gyre::cuda {

// Lines: how a line carries what threads have of it; see Ll and Ll128.
template <typename Lines>
struct LineProtocol {
  static constexpr bool waits_while_it_moves = true;

  GYRE_DEVICE static std::uint32_t lines_for(std::uint64_t bytes) {
    return static_cast<std::uint32_t>((bytes + Lines::payload_bytes - 1) / Lines::payload_bytes);
  }
  GYRE_DEVICE static std::uint32_t lines_of(const plan::Move& move) {
    std::uint32_t lines = 0;
    plan::PieceWalk pieces(move);
    for (plan::Piece piece; pieces.next(piece);) lines += lines_for(piece.bytes);
    return lines > 0 ? lines : 1;
  }

  GYRE_DEVICE static void open_send(Walk&, EndState& end, const DeviceEnd& wired) {
    // Pairs with the releases in tell.
    end.seen = device::load_acquire(wired.heard);
  }
  GYRE_DEVICE static void open_receive(Walk&, EndState& end, const DeviceEnd&) {
    end.seen = end.next;  // a call ends with all lines given back
  }

  // Lines are polled where they are used. But lanes of one rank share its buffers, and what one has
  // stored there for another is not in the line that tells of it: a link to the own rank counts.
  GYRE_DEVICE static bool is_self(const Walk& walk, std::uint32_t link) {
    return walk.lane.lane.links[link].peer == static_cast<std::int32_t>(walk.call.rank);
  }
  GYRE_DEVICE static void await_message(Walk& walk, const plan::Move&, std::uint32_t lines,
                                        std::uint32_t link) {
    if (!is_self(walk, link)) return;
    const std::uint64_t next = walk.state.receive[link].next;
    std::uint32_t polls = 0;
    // Pairs with the release in close_sent.
    while (device::load_acquire(walk.lane.receive[link].heard) - next < lines)
      if (!walk.poll_again(polls, WaitingFor::data, link)) return;
  }

  GYRE_DEVICE static void await_credit(Walk& walk, const plan::Move&, std::uint32_t lines,
                                       std::uint32_t link) {
    EndState& end = walk.state.send[link];
    std::uint32_t polls = 0;
    while (end.next + lines - end.seen > walk.ring_count()) {
      // Pairs with the releases in tell. A head out of bounds is not believed.
      const std::uint64_t head = device::load_acquire(walk.lane.send[link].heard);
      if (head - end.seen <= end.next - end.seen) end.seen = head;
      if (end.next + lines - end.seen <= walk.ring_count()) return;
      if (!walk.poll_again(polls, WaitingFor::credit, link)) return;
    }
  }

  template <typename Reducer>
  GYRE_DEVICE static void perform(Walk& walk, const plan::Move& move, std::uint32_t) {
    std::uint64_t line = 0;
    plan::PieceWalk pieces(move);
    for (plan::Piece piece; pieces.next(piece);) {
      const std::uint32_t lines = lines_for(piece.bytes);
      move_lines<Reducer>(walk, operands_of(walk, move, piece), line, lines);
      line += lines;
    }
    if (line > 0) return;
    const plan::Piece token;
    Operands on = operands_of(walk, move, token);
    on.store = nullptr;
    move_lines<Reducer>(walk, on, 0, 1);
  }

  // A thread has one part of a line after the other; whole warps go round together.
  template <typename Reducer>
  GYRE_DEVICE static void move_lines(Walk& walk, const Operands& on, std::uint64_t first,
                                     std::uint32_t lines) {
    const std::uint32_t parts = lines * Lines::parts;
    const std::uint32_t in_warp = device::thread_index() % device::warp_threads;
    for (std::uint32_t at = device::thread_index(); at - in_warp < parts;
         at += device::thread_count()) {
      const std::uint64_t offset = Lines::offset_of(at);
      const std::uint64_t left = on.piece.bytes > offset ? on.piece.bytes - offset : 0;
      const std::uint32_t most = Lines::bytes_of(at);
      const std::uint32_t bytes = left < most ? static_cast<std::uint32_t>(left) : most;
      const std::uint64_t line = first + at / Lines::parts;
      const bool active = at < parts;
      const Bytes16 result =
          combine<Reducer>(walk, on, line, at, offset, active ? bytes : 0, active);
      for (std::uint32_t t = 0; t < on.move.send.count && !walk.stopped; ++t) {
        const std::uint32_t link = on.move.send[t];
        const std::uint64_t number = walk.state.send[link].next + line;
        Lines::put(walk, walk.lane.send[link].ring, number, at, active, result);
      }
      const bool is_there = !on.changes && on.sources == 1 && on.store == on.own;
      if (on.store == nullptr || bytes == 0 || !active || is_there || walk.stopped) continue;
      store_bytes(on.store + offset, result, bytes);
    }
  }

  template <typename Reducer>
  GYRE_DEVICE static Bytes16 combine(Walk& walk, const Operands& on, std::uint64_t line,
                                     std::uint32_t at, std::uint64_t offset, std::uint32_t bytes,
                                     bool active) {
    typename Reducer::Value value{};
    Bytes16 raw{0, 0};
    for (std::uint32_t s = 0; s < on.sources; ++s) {
      raw = Bytes16{0, 0};
      if (!on.is_own(s)) {
        const std::uint32_t link = on.move.recv[on.link_place(s)];
        const std::uint64_t number = walk.state.receive[link].next + line;
        raw = Lines::fetch(walk, walk.lane.receive[link].ring, number, at, active, link);
      } else if (bytes > 0) {
        raw = load_bytes(on.own + offset, bytes);
        if (Reducer::adjusts && on.scales) raw = Reducer::scaled(raw, on.how);
      }
      if (!on.changes) return raw;
      if (s == 0)
        value = Reducer::widen(raw);
      else
        Reducer::combine(value, raw, on.how);
    }
    return Reducer::narrow(value, on.how);
  }

  GYRE_DEVICE static void close_sent(Walk& walk, const plan::Move&, std::uint32_t lines,
                                     std::uint32_t link) {
    const std::uint64_t next = walk.state.send[link].next += lines;
    // Pairs with the acquire in await_message.
    if (is_self(walk, link)) device::store_release(walk.lane.send[link].told, next);
  }
  GYRE_DEVICE static void close_received(Walk& walk, std::uint32_t lines, std::uint32_t link) {
    EndState& end = walk.state.receive[link];
    end.next += lines;
    if (end.next - end.seen >= walk.ring_count() / 4) tell(walk, link);
  }
  GYRE_DEVICE static void tell(Walk& walk, std::uint32_t link) {
    EndState& end = walk.state.receive[link];
    end.seen = end.next;
    // Pairs with the acquires in open_send and await_credit.
    device::store_release(walk.lane.receive[link].told, end.next);
  }

  GYRE_DEVICE static void finish_send(Walk&, std::uint32_t) {}
  GYRE_DEVICE static void finish_receive(Walk& walk, std::uint32_t link) {
    if (walk.state.receive[link].seen != walk.state.receive[link].next) tell(walk, link);
  }
};

}  // namespace gyre::cuda
