#include "bench/training/train/examples.h"

#include "bench/training/failure.h"

namespace gyre::training {

Examples::Examples(std::uint64_t count, int rank, int ranks, std::uint64_t seed, std::size_t batch,
                   const TrainingProgress& progress)
    : sampler_{.samples = count,
               .rank = rank,
               .ranks = ranks,
               .seed = seed,
               .shuffle = 1,
               .pad = 0},
      progress_(progress),
      batch_(batch) {}

// Number i of rank r is number i * ranks + r of all. An epoch's last examples that do not fill all
// ranks' batches are left out.
std::span<const std::uint64_t> Examples::next() {
  const auto ranks = static_cast<std::uint64_t>(sampler_.ranks);
  std::uint64_t count = 0;
  expect(gyreSamplerCount(&sampler_, &count));
  std::uint64_t first = progress_.taken / ranks;
  if (first > count || count - first < batch_.size()) {
    ++progress_.epoch;
    progress_.taken = first = 0;
  }
  for (std::uint64_t& example : batch_)
    expect(gyreSamplerGet(&sampler_, progress_.epoch, first++, &example));
  progress_.taken = first * ranks;
  ++progress_.steps;
  return batch_;
}

}  // namespace gyre::training
