#include "bench/training/pipeline_stage.h"

namespace gyre::bench {

PipelineStage::PipelineStage(gyreComm_t comm, Schedule schedule, int micro_batches,
                             std::size_t bytes)
    : comm_(comm), bytes_(bytes) {
  gyreCommUserRank(comm, &stage_);
  gyreCommCount(comm, &stages_);
  actions_ = actions_of(schedule, stage_, stages_, micro_batches);
  // Those in flight are numbered in a row, so each has a buffer of its own.
  activations_.assign(static_cast<std::size_t>(max_in_flight(actions_)), ByteBuffer(bytes));
  for (ByteBuffer& one : gradients_) one.resize(bytes);
}

gyreResult_t PipelineStage::run(const StageWork& work) {
  const Action* done = nullptr;
  for (const Action& action : actions_) {
    if (const auto result = exchange(done, &action); result != gyreSuccess) return result;
    ByteBuffer& buffer = buffer_of(action);
    if (action.is_forward)
      work.forward(action.micro_batch, buffer);
    else
      work.backward(action.micro_batch, buffer_of({true, action.micro_batch}), buffer);
    done = &action;
  }
  return exchange(done, nullptr);
}

PipelineStage::ByteBuffer& PipelineStage::buffer_of(const Action& action) {
  const auto micro_batch = static_cast<std::size_t>(action.micro_batch);
  return action.is_forward ? activations_[micro_batch % activations_.size()]
                           : gradients_[micro_batch % 2];
}

// Activations come from the stage before and gradients from the one behind.
bool PipelineStage::has_sender(const Action& action) const {
  return action.is_forward ? stage_ > 0 : stage_ + 1 < stages_;
}
bool PipelineStage::has_receiver(const Action& action) const {
  return action.is_forward ? stage_ + 1 < stages_ : stage_ > 0;
}

gyreResult_t PipelineStage::exchange(const Action* done, const Action* next) {
  gyreGroupStart();
  if (done != nullptr && has_receiver(*done))
    gyreSend(buffer_of(*done).data(), bytes_, gyreUint8, stage_ + (done->is_forward ? 1 : -1),
             comm_, nullptr);
  if (next != nullptr && has_sender(*next))
    gyreRecv(buffer_of(*next).data(), bytes_, gyreUint8, stage_ + (next->is_forward ? -1 : 1),
             comm_, nullptr);
  return gyreGroupEnd();  // also of what was refused within
}

}  // namespace gyre::bench
