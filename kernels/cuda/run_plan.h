// The interpreter: a block walks its lane with the shared cursor, move after move. Before a move,
// threads wait for its links, each for its own. All of them move the bytes. Then messages are
// announced and slots released. The first thread finds the next move while the others move bytes.
#pragma once

#include "kernels/cuda/walk.h"

namespace gyre::cuda {

// Of the first thread alone, once a move: no reason to have it in line. The state is all it takes,
// so that nothing of the callers' has to lie in memory for it.
GYRE_OUTLINE void begin_lane(BlockState& state) {
  const plan::Geometry& geometry = state.task.geometry;
  state.cursor = plan::Cursor(state.task.lane->lane, geometry, plan::rounds(geometry));
}

template <typename Protocol>
GYRE_OUTLINE void show_move(BlockState& state, std::uint32_t turn, bool advances) {
  plan::Cursor& cursor = state.cursor;
  if (advances) cursor.advance();
  state.more[turn] = !cursor.done();
  if (cursor.done()) return;
  state.moves[turn] = cursor.move();
  state.lines[turn] = Protocol::lines_of(state.moves[turn]);
}

// Calls act(link) for the links that this thread serves.
template <typename Act>
GYRE_DEVICE void each_own_link(const Walk& walk, Act&& act) {
  GYRE_NO_UNROLL
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

GYRE_DEVICE void end_launch(const DeviceLaunch& launch, std::uint64_t sequence) {
  if (device::add_acquire_release(launch.blocks_ended, 1) + 1 != device::block_count()) return;
  // The blocks that have added theirs have read the sequence before, and counted the start.
  device::store_relaxed(launch.blocks_ended, std::uint32_t{0});
  device::store_relaxed(&launch.progress->ended, device::load_relaxed(launch.starts));
  device::store_8(reinterpret_cast<std::byte*>(launch.sequence), sequence + launch.calls);
}

// Tells the host that the launch runs. Launches follow one another.
GYRE_DEVICE void show_start(const DeviceLaunch& launch, const BlockState& state) {
  if (device::block_index() != 0) return;
  const std::uint32_t starts = device::load_relaxed(launch.starts) + 1;
  device::store_relaxed(launch.starts, starts);
  device::store_relaxed(&state.task.call.progress->started, starts);
  if (launch.number != 0) device::store_relaxed(&state.task.call.progress->launched, launch.number);
}

// The block's first task; without tasks, what the launch says itself.
GYRE_DEVICE void take_first(const DeviceLaunch& launch, BlockState& state) {
  if (launch.tasks != nullptr) {
    state.task = launch.tasks[device::block_index()];
    return;
  }
  state.task.lane = &launch.lanes[device::block_index()];
  state.task.call = launch;
  state.task.geometry = launch.geometries[state.task.lane->channel];
  state.task.then = nullptr;
}

// The first thread's: the way through the task's lane.
template <typename Protocol>
GYRE_DEVICE void begin_task(BlockState& state, std::uint64_t sequence) {
  const DeviceTask& task = state.task;
  if (task.lane == nullptr) return;
  state.sequence = sequence + task.call.ordinal;
  state.gave_up = device::load_relaxed(task.call.gave_up) != 0;
  begin_lane(state);
  show_move<Protocol>(state, 0, false);
}

// Walks the task's lane. False if the block has to leave.
template <typename Protocol, typename Reducer>
GYRE_DEVICE bool walk_task(BlockState& state) {
  if (state.gave_up) return false;
  const bool first_thread = device::thread_index() == 0;
  Walk walk{state.task.call, *state.task.lane, state, false, 0};
  open_ends<Protocol>(walk);
  for (std::uint32_t turn = 0; walk.state.more[turn]; turn ^= 1) {
    const plan::Move& move = walk.state.moves[turn];
    const std::uint32_t lines = walk.state.lines[turn];
    await_links<Protocol>(walk, move, lines);
    // What its links' threads have acquired, all threads have.
    if (device::block_any(walk.stopped)) return false;
    if (first_thread) {
      show_move<Protocol>(state, turn ^ 1, true);
    }
    Protocol::template perform<Reducer>(walk, move, lines);
    // What all threads have written, its links' threads can release.
    if constexpr (Protocol::waits_while_it_moves) {
      if (device::block_any(walk.stopped)) return false;
    } else {
      device::block_barrier();
    }
    close_links<Protocol>(walk, move, lines);
  }
  close_ends<Protocol>(walk);
  return true;
}

template <typename Protocol, typename Reducer>
GYRE_DEVICE void run_plan(const DeviceLaunch& launch) {
  BlockState& state = device::block_memory<BlockState>();
  const bool first_thread = device::thread_index() == 0;
  std::uint64_t sequence = 0;
  if (first_thread) {
    sequence = device::load_8(reinterpret_cast<const std::byte*>(launch.sequence));
    take_first(launch, state);
    show_start(launch, state);
    begin_task<Protocol>(state, sequence);
  }
  device::block_barrier();
  while (state.task.lane != nullptr) {
    if (!walk_task<Protocol, Reducer>(state)) return;
    if (state.task.then == nullptr) break;
    // All are done with this task, and then all have the next one.
    device::block_barrier();
    if (first_thread) {
      state.task = *state.task.then;
      begin_task<Protocol>(state, sequence);
    }
    device::block_barrier();
  }
  if (first_thread) end_launch(launch, sequence);
}

}  // namespace gyre::cuda
