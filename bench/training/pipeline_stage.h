// One stage of a pipeline: carries out its actions, in order, on a communicator of all stages.
// Between two actions it sends the output of the first and receives the input of the second, as one
// group. So neighbours that exchange in both directions do not wait for each other in turn.
#pragma once

#include "bench/training/pipeline_schedule.h"
#include <gyre/gyre.h>

#include <cstddef>
#include <functional>
#include <span>

namespace gyre::bench {

// What a stage does with a micro-batch. Forward: its input's activations become its output's; the
// first stage makes them up. Backward: the same of gradients, given the activations that its
// forward left; the last stage makes the gradients up.
struct StageWork {
  using ByteSpan = std::span<std::byte>;
  std::function<void(int micro_batch, ByteSpan activations)> forward;
  std::function<void(int micro_batch, ByteSpan activations, ByteSpan gradients)> backward;
};

class PipelineStage {
 public:
  // Of each micro-batch `bytes` go from stage to stage. `comm`: rank s is stage s. All but `comm`
  // are the same on all stages.
  PipelineStage(gyreComm_t comm, Schedule schedule, int micro_batches, std::size_t bytes);

  int stage() const { return stage_; }
  int stages() const { return stages_; }

  // A training step. All stages call it.
  gyreResult_t run(const StageWork& work);

 private:
  using ByteBuffer = std::vector<std::byte>;

  ByteBuffer& buffer_of(const Action& action);
  bool has_sender(const Action& action) const;
  bool has_receiver(const Action& action) const;
  gyreResult_t exchange(const Action* done, const Action* next);

  gyreComm_t comm_;
  const std::size_t bytes_;
  int stage_ = 0, stages_ = 1;
  std::vector<Action> actions_;
  std::vector<ByteBuffer> activations_;  // of the micro-batches in flight
  ByteBuffer gradients_[2];              // one may leave while the next one comes
};

}  // namespace gyre::bench
