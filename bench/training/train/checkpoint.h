// A checkpoint: one file. Each rank writes its part of the model at that part's place in the whole,
// so any number of ranks, in any mode, can read it. It begins with a line of JSON, padded: a
// description of the model, and the progress of training. From a multiple of 4096 on, all
// parameters follow in order, then the optimizer's first state, and its second.
#pragma once

#include "bench/training/train/checkpoint_head.h"
#include "bench/training/train/way.h"

namespace gyre::training {

// Ends the program if a checkpoint cannot be written there, before training for nothing.
void expect_writable(const std::string& path);
// Collective. The file is replaced when all ranks have written; before that it stays as it was.
void save_checkpoint(const std::string& path, gyreComm_t comm, const CheckpointHead& head,
                     Way& way);
// Collective. Ends the program with the reason where the file is not of this model.
TrainingProgress load_checkpoint(const std::string& path, gyreComm_t comm,
                                 const CheckpointHead& expected, Way& way);

}  // namespace gyre::training
