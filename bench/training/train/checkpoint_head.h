// The head of a checkpoint, before its numbers: a line of JSON, padded to a multiple of 4096.
#pragma once

#include "bench/training/train/model.h"

#include <string_view>
#include <utility>

namespace gyre::training {

// How far training has come. Examples are counted over all ranks.
struct TrainingProgress {
  std::uint64_t steps = 0, epoch = 0, taken = 0;  // taken: in this epoch
  friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

struct CheckpointHead {
  TrainingProgress progress;
  std::string optimizer;
  std::vector<std::pair<std::string, std::size_t>> tensors;  // names and counts
  friend bool operator==(const CheckpointHead&, const CheckpointHead&) = default;

  static CheckpointHead of(const Model& model, const std::string& optimizer,
                           const TrainingProgress& progress);
  // The number of tensors' elements; each takes 12 bytes.
  std::uint64_t elements() const;
};

// The file's beginning: a multiple of 4096 bytes. And back: empty, or why not; `begin` is where the
// numbers lie.
std::string encode_head(const CheckpointHead& head);
std::string decode_head(std::string_view file, CheckpointHead* head, std::uint64_t* begin);

}  // namespace gyre::training
