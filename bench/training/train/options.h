// The options of the training program.
#pragma once

#include "bench/training/train/way.h"

#include <optional>

namespace gyre::training {

struct Options {
  std::string model = "digits", parallel = "ddp", optimizer = "adamw";
  std::vector<std::string> data;
  int threads = 0;  // ranks as threads of this process; 0: as processes
  int factor = 0, staleness = 1;

  // 0: the model's default.
  std::size_t layers = 0, batch = 0;
  std::size_t width = 256, heads = 8, length = 96;
  std::uint64_t steps = 0, local_steps = 8, warmup = 0, every = 10, checkpoint_every = 0;
  std::uint64_t seed = 1;
  double rate = 0, decay = 0.1, momentum = 0.9, until_loss = 0, bucket_mb = 5;
  bool has_until_loss = false;
  std::string json, checkpoint, resume;

  WayOptions way() const;
  // What the optimizer is told at its update number `count` from 1.
  gyreGradStep_t step_at(std::uint64_t count) const;
  // What all ranks have to be told alike, as one text.
  std::string agreed() const;
};

// None: the program ends with *exit_code, as all has been said.
std::optional<Options> parse_options(int count, const char* const* arguments, int* exit_code);

}  // namespace gyre::training
