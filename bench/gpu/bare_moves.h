// Bare moves: the kernels' own move code on memory of one device, without links, plans or waiting,
// to be compared with the device's limits. Each block takes piece after piece, as a channel does.
#pragma once

#include "kernels/cuda/packs.h"

namespace gyre::bench {

struct BareMove {
  cuda::DeviceLaunch launch;          // input, output and arithmetic
  const std::byte* second = nullptr;  // what is added to the input; null: the input is copied
  std::uint64_t bytes = 0;
  std::uint64_t piece_bytes = 0;
};

template <typename Reducer, bool reduces>
GYRE_DEVICE void bare_moves(const BareMove& on) {
  cuda::DeviceLane lane{};
  auto& state = cuda::device::block_memory<cuda::BlockState>();
  if (cuda::device::thread_index() == 0) state.incoming[0] = {on.second, cuda::Lies::in_message};
  cuda::device::block_barrier();
  cuda::Walk walk{on.launch, lane, state, false, 0};
  plan::Step step{};
  step.local = plan::Buffer::input;
  step.store = plan::Buffer::output;
  step.recv_count = reduces ? 1 : 0;
  plan::Move move{};
  move.step = &step;
  move.recv = {0, step.recv_count, 0};
  const std::uint64_t stride = on.piece_bytes * cuda::device::block_count();
  for (std::uint64_t at = cuda::device::block_index() * on.piece_bytes; at < on.bytes;
       at += stride) {
    const std::uint64_t left = on.bytes - at;
    const plan::Piece piece{0, left < on.piece_bytes ? left : on.piece_bytes, at, at, at};
    cuda::move_piece<Reducer>(walk, cuda::operands_of(walk, move, piece));
  }
}

}  // namespace gyre::bench
