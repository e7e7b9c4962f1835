// The interpreter: a block walks its lane with the shared cursor, move after move. Before a move,
// threads wait for its links, each for its own; all of them move the bytes; then messages are told
// and given back. The first thread finds the next move while the others move bytes.
#pragma once

#include "kernels/cuda/walk.h"

namespace gyre::cuda {

template <typename Protocol>
GYRE_DEVICE void show_move(Walk& walk, std::uint32_t turn) {
  const plan::Cursor& cursor = walk.state.cursor;
  walk.state.more[turn] = !cursor.done();
  if (cursor.done()) return;
  walk.state.moves[turn] = cursor.move();
  walk.state.lines[turn] = Protocol::lines_of(walk.state.moves[turn]);
}

// Calls act(link) for the links that this thread serves.
template <typename Act>
GYRE_DEVICE void each_own_link(const Walk& walk, Act&& act) {
  for (std::uint32_t link = device::thread_index(); link < walk.lane.lane.link_count;
       link += device::thread_count())
    act(link);
}

template <typename Protocol>
GYRE_DEVICE void open_ends(Walk& walk) {
  each_own_link(walk, [&](std::uint32_t link) {
    const DeviceEnd& send = walk.lane.send[link];
    const DeviceEnd& receive = walk.lane.receive[link];
    if (send.next != nullptr) {
      walk.state.send[link].next = device::load_relaxed(send.next);
      Protocol::open_send(walk, walk.state.send[link], send);
    }
    if (receive.next != nullptr) {
      walk.state.receive[link].next = device::load_relaxed(receive.next);
      Protocol::open_receive(walk, walk.state.receive[link], receive);
    }
  });
}

template <typename Protocol>
GYRE_DEVICE void await_links(Walk& walk, const plan::Move& move, std::uint32_t lines) {
  each_own_link(walk, [&](std::uint32_t link) {
    if (has_link(move.recv, link) && !walk.stopped)
      Protocol::await_message(walk, move, lines, link);
    if (has_link(move.send, link) && !walk.stopped) Protocol::await_credit(walk, move, lines, link);
  });
}

template <typename Protocol>
GYRE_DEVICE void close_links(Walk& walk, const plan::Move& move, std::uint32_t lines) {
  each_own_link(walk, [&](std::uint32_t link) {
    if (has_link(move.send, link)) Protocol::close_sent(walk, move, lines, link);
    if (has_link(move.recv, link)) Protocol::close_received(walk, lines, link);
  });
}

// Counters go back to where the next call, or the next replay, finds them.
template <typename Protocol>
GYRE_DEVICE void close_ends(Walk& walk) {
  each_own_link(walk, [&](std::uint32_t link) {
    const DeviceEnd& send = walk.lane.send[link];
    const DeviceEnd& receive = walk.lane.receive[link];
    if (receive.next != nullptr) {
      Protocol::finish_receive(walk, link);
      device::store_relaxed(receive.next, walk.state.receive[link].next);
    }
    if (send.next != nullptr) {
      Protocol::finish_send(walk, link);
      device::store_relaxed(send.next, walk.state.send[link].next);
    }
  });
}

GYRE_DEVICE void end_call(const Walk& walk) {
  const DeviceLaunch& launch = walk.launch;
  if (device::add_acquire_release(launch.blocks_ended, 1) + 1 != device::block_count()) return;
  // The blocks that have added theirs have read the sequence before.
  device::store_relaxed(launch.blocks_ended, std::uint32_t{0});
  device::store_8(reinterpret_cast<std::byte*>(launch.sequence), walk.state.sequence + 1);
}

template <typename Protocol, typename Reducer>
GYRE_DEVICE void run_plan(const DeviceLaunch& launch) {
  const bool first_thread = device::thread_index() == 0;
  Walk walk{launch, launch.lanes[device::block_index()], device::block_memory<BlockState>(), false,
            0};
  if (first_thread) {
    walk.state.sequence = device::load_8(reinterpret_cast<const std::byte*>(launch.sequence));
    walk.state.cursor =
        plan::Cursor(walk.lane.lane, walk.geometry(), plan::rounds(walk.geometry()));
    show_move<Protocol>(walk, 0);
  }
  device::block_barrier();
  open_ends<Protocol>(walk);
  for (std::uint32_t turn = 0; walk.state.more[turn]; turn ^= 1) {
    const plan::Move& move = walk.state.moves[turn];
    const std::uint32_t lines = walk.state.lines[turn];
    await_links<Protocol>(walk, move, lines);
    // What its links' threads have acquired, all threads have.
    if (device::block_any(walk.stopped)) return;
    if (first_thread) {
      walk.state.cursor.advance();
      show_move<Protocol>(walk, turn ^ 1);
    }
    Protocol::template perform<Reducer>(walk, move, lines);
    // What all threads have written, its links' threads can release.
    if constexpr (Protocol::waits_while_it_moves) {
      if (device::block_any(walk.stopped)) return;
    } else {
      device::block_barrier();
    }
    close_links<Protocol>(walk, move, lines);
  }
  close_ends<Protocol>(walk);
  if (first_thread) end_call(walk);
}

}  // namespace gyre::cuda
