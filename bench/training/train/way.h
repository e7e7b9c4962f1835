// A Way is one of the ways in which ranks train one model together: it decides where a rank's
// parameters and gradients are, and how an optimizer step combines those of all ranks.
#pragma once

#include "bench/training/train/model.h"
#include <gyre/gradsync.h>

#include <functional>

namespace gyre::training {

enum class Parallelism { ddp, zero1, zero2, zero3, hybrid, stale, server, local };

struct WayOptions {
  Parallelism parallel = Parallelism::ddp;
  gyreGradOptimizer_t optimizer = gyreGradAdamW;
  bool has_momentum = false;
  std::uint64_t seed = 1;
  std::uint64_t local_steps = 8;  // between two means of parameters
  int staleness = 1;              // rounds
  int factor = 0;                 // ranks that share one model; 0: all
  std::size_t bucket_bytes = 5 << 20;
  // What the optimizer is told at its update number `count` from 1.
  std::function<gyreGradStep_t(std::uint64_t count)> step_at;
};

class Way : public Storage {
 public:
  // Ends a step: gradients are summed up and parameters changed. Collective.
  virtual void step() = 0;
  // After the last step: all ranks have the same parameters after it. Collective.
  virtual void settle() {}
  // Whether no rank ends a step before all have begun it; else they may not wait for each other
  // between steps in another way.
  virtual bool is_in_step() const { return true; }
  // Spent waiting for other ranks, since the beginning.
  virtual double exposed_seconds() const = 0;

  // What this rank keeps of the model, for checkpoints; and of that, what it is to write.
  virtual std::vector<gyreGradPiece_t> pieces() = 0;
  virtual std::vector<gyreGradPiece_t> pieces_to_save() = 0;
  // After pieces were read: so many updates have been made. Collective.
  virtual void imported(std::uint64_t updates) = 0;
};

}  // namespace gyre::training
