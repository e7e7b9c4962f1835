// Which examples each rank takes: all ranks' batches of a step together are the next examples of
// the epoch's order, for any number of ranks.
#pragma once

#include "bench/training/train/checkpoint_head.h"
#include <gyre/gradsync.h>

#include <span>

namespace gyre::training {

class Examples {
 public:
  // Of so many, which are at least batch * ranks.
  Examples(std::uint64_t count, int rank, int ranks, std::uint64_t seed, std::size_t batch,
           const TrainingProgress& progress);
  // This rank's part of the next step.
  std::span<const std::uint64_t> next();
  const TrainingProgress& progress() const { return progress_; }

 private:
  gyreSampler_t sampler_;
  TrainingProgress progress_;
  std::vector<std::uint64_t> batch_;
};

}  // namespace gyre::training
