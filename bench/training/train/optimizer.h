// The optimizers of gyreGradShards, for ranks that keep whole replicas: the same roundings.
#pragma once

#include <gyre/gradsync.h>

#include <cstddef>
#include <cstdint>

namespace gyre::training {

// One update of a piece, number `count` from 1. SGD without momentum has no state1.
void update_piece(gyreGradOptimizer_t optimizer, const gyreGradStep_t& step, std::uint64_t count,
                  const gyreGradPiece_t& piece, const float* gradient);

}  // namespace gyre::training
