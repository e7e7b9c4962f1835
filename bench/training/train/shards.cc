#include "bench/training/train/shards.h"

#include "bench/training/failure.h"
#include "bench/training/job.h"

namespace gyre::training {
namespace {

struct FirstValues {
  const std::vector<TensorShape>& shapes;
  std::uint64_t seed;

  static int give(void* user, std::size_t tensor, void* values) {
    const auto& self = *static_cast<const FirstValues*>(user);
    initialize(self.shapes[tensor], tensor, self.seed, static_cast<float*>(values));
    return 0;
  }
};

int stage_of(Parallelism parallel) {
  return parallel == Parallelism::zero1 ? 1 : parallel == Parallelism::zero2 ? 2 : 3;
}

}  // namespace

ShardedTraining::ShardedTraining(gyreComm_t comm, const Model& model, const WayOptions& options)
    : options_(options) {
  // Groups are alike, and the first one saves.
  saves_ = options.factor == 0 || bench::rank_of(comm) < options.factor;
  std::vector<gyreGradShardTensor_t> tensors;
  for (const TensorShape& shape : model.tensors())
    tensors.push_back({shape.name.c_str(), shape.count, gyreFloat, shape.unit});
  FirstValues first{model.tensors(), options.seed};
  gyreGradShardsConfig_t config = GYRE_GRAD_SHARDS_CONFIG_INITIALIZER;
  config.stage = stage_of(options.parallel);
  config.factor = options.factor;
  config.optimizer = options.optimizer;
  config.momentum = options.has_momentum;
  config.initialize = FirstValues::give;
  config.user = &first;
  expect(gyreGradShardsCreate(&shards_, comm, tensors.data(), tensors.size(), &config));
}

ShardedTraining::~ShardedTraining() { gyreGradShardsDestroy(shards_); }

void ShardedTraining::gather(std::size_t unit) { expect(gyreGradShardsGather(shards_, unit)); }
void ShardedTraining::release(std::size_t unit) { expect(gyreGradShardsRelease(shards_, unit)); }

const float* ShardedTraining::parameter(std::size_t tensor) {
  void* values = nullptr;
  expect(gyreGradShardsParameter(shards_, tensor, &values));
  return static_cast<const float*>(values);
}

float* ShardedTraining::gradient(std::size_t tensor) {
  void* values = nullptr;
  expect(gyreGradShardsGradient(shards_, tensor, &values));
  return static_cast<float*>(values);
}

void ShardedTraining::ready(std::size_t tensor) { expect(gyreGradShardsReady(shards_, tensor)); }

void ShardedTraining::step() {
  const gyreGradStep_t step = options_.step_at(++steps_);
  gyreGradStepResult_t result{};
  result.size = sizeof result;
  expect(gyreGradShardsStep(shards_, &step, &result));
  if (result.overflow != 0) fail("a gradient is infinite or not a number: try a lower --rate");
  exposed_seconds_ += result.exposedSeconds;
}

std::vector<gyreGradPiece_t> ShardedTraining::pieces() {
  std::size_t count = 0;
  expect(gyreGradShardsPieces(shards_, nullptr, &count));
  std::vector<gyreGradPiece_t> pieces(count);
  expect(gyreGradShardsPieces(shards_, pieces.data(), &count));
  return pieces;
}

std::vector<gyreGradPiece_t> ShardedTraining::pieces_to_save() {
  if (!saves_) return {};
  return pieces();
}

void ShardedTraining::imported(std::uint64_t updates) {
  steps_ = updates;
  expect(gyreGradShardsImported(shards_, updates));
}

}  // namespace gyre::training
