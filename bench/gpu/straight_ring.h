// The hand-written ring all-reduce of two ranks over the simple protocol. It does what the
// interpreter (kernels/cuda/run_plan.h) does with the plan, without a cursor and without steps in
// memory. It exists only to measure the interpreter's cost.
#pragma once

#include "kernels/cuda/run_plan.h"
#include "kernels/cuda/simple.h"

namespace gyre::bench {

// One move; false if a wait ended without its message. One link, which the first thread serves.
template <typename Reducer, bool receives, bool sends>
GYRE_DEVICE bool straight_move(cuda::Walk& walk, const plan::Step& step, std::uint32_t chunk,
                               std::uint64_t round_offset) {
  using cuda::Simple;
  const plan::Geometry& geometry = walk.geometry();
  const std::uint64_t bytes = geometry.piece(plan::Buffer::input, chunk, round_offset);
  if (bytes == 0) return true;
  plan::Move move{};
  move.step = &step;
  move.geometry = &geometry;
  move.round_offset = round_offset;
  move.bytes = bytes;
  move.place = chunk;
  move.recv = {0, receives ? 1U : 0U, 0};
  move.send = {0, sends ? 1U : 0U, 0};
  const bool serves = cuda::device::thread_index() == 0;
  if (serves && receives) Simple::await_message(walk, move, 0, 0);
  if (serves && sends && !walk.stopped) Simple::await_credit(walk, move, 0, 0);
  if (cuda::device::block_any(walk.stopped)) return false;
  const plan::Piece piece{chunk, bytes, 0, geometry.input.offset(chunk) + round_offset,
                          geometry.output.offset(chunk) + round_offset};
  cuda::move_piece<Reducer>(walk, cuda::operands_of(walk, move, piece));
  cuda::device::block_barrier();
  if (serves && sends) Simple::close_sent(walk, move, 0, 0);
  if (serves && receives) Simple::close_received(walk, 0, 0);
  return true;
}

template <typename Reducer>
GYRE_DEVICE void straight_ring(const cuda::DeviceLaunch& launch) {
  auto& state = cuda::device::block_memory<cuda::BlockState>();
  const bool first_thread = cuda::device::thread_index() == 0;
  if (first_thread) {
    state.sequence = cuda::device::load_8(reinterpret_cast<const std::byte*>(launch.sequence));
    cuda::take_first(launch, state);
    cuda::show_start(launch, state);
  }
  cuda::device::block_barrier();
  cuda::Walk walk{state.task.call, *state.task.lane, state, false, 0};
  cuda::open_ends<cuda::Simple>(walk);
  plan::Step send{}, sum{}, take{};
  send.local = sum.local = plan::Buffer::input;
  sum.store = take.store = plan::Buffer::output;
  sum.flags = plan::step_flag::finish;
  send.send_count = sum.send_count = sum.recv_count = take.recv_count = 1;
  send.chunks.wrap = sum.chunks.wrap = take.chunks.wrap = 2;
  const std::uint32_t own = launch.rank, other = 1 - launch.rank;
  const std::uint64_t rounds = plan::rounds(walk.geometry());
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t offset = round * walk.geometry().piece_bytes;
    if (!straight_move<Reducer, false, true>(walk, send, other, offset)) return;
    if (!straight_move<Reducer, true, true>(walk, sum, own, offset)) return;
    if (!straight_move<Reducer, true, false>(walk, take, other, offset)) return;
  }
  cuda::close_ends<cuda::Simple>(walk);
  if (first_thread) cuda::end_launch(launch, state.sequence);
}

}  // namespace gyre::bench
