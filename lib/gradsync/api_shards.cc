// The C functions of shards.
#include "kernels/cpu/elementwise.h"
#include "lib/gradsync/gradsync_api.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace gyre::gradsync {
namespace {

Result<ShardOptions> read_options(const gyreGradShardsConfig_t* given) {
  GYRE_ASSIGN(const gyreGradShardsConfig_t config,
              read_struct(given, gyreGradShardsConfig_t GYRE_GRAD_SHARDS_CONFIG_INITIALIZER,
                          GYRE_GRAD_SHARDS_MAGIC, offsetof(gyreGradShardsConfig_t, stage)));
  GYRE_TRY(in_range("stage", config.stage, 1, 3));
  GYRE_TRY(in_range("factor", config.factor, 0, INT_MAX));
  GYRE_TRY(in_range("optimizer", config.optimizer, gyreGradAdamW, gyreGradOwn));
  GYRE_TRY(in_range("momentum", config.momentum, 0, 1));
  GYRE_TRY(in_range("prefetch", config.prefetch, 0, 1 << 20));
  if (config.timeoutMs != GYRE_CONFIG_UNDEF_INT)
    GYRE_TRY(in_range("timeoutMs", config.timeoutMs, 1, INT_MAX));
  return ShardOptions{.stage = config.stage,
                      .factor = config.factor,
                      .optimizer = static_cast<gyreGradOptimizer_t>(config.optimizer),
                      .has_momentum = config.momentum == 1,
                      .prefetch = config.prefetch,
                      .timeout_ms = config.timeoutMs,
                      .initialize = config.initialize,
                      .user = config.user};
}

Status check_types(std::span<const Tensor> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!kernels::has_elementwise(tensors[i].type))
      return invalid_argument(fmt::format("{} is {}; shards are of float32, float16 or bfloat16",
                                          call_by_name(tensors, i), element_name(tensors[i].type)));
  return {};
}

Status create(gyreGradShards_t* shards, gyreComm_t comm, const gyreGradShardTensor_t tensors[],
              std::size_t count, const gyreGradShardsConfig_t* config) {
  if (shards == nullptr) return invalid_argument("shards is NULL");
  *shards = nullptr;
  GYRE_ASSIGN(auto list, read_tensors(tensors, count));
  GYRE_TRY(check_types(list));
  GYRE_ASSIGN(const ShardOptions options, read_options(config));
  GYRE_TRY(check_communicator(comm));
  GYRE_ASSIGN(auto made, Shards::create(comm, std::move(list), options));
  return keep(handles().shards, std::move(made), shards, "sharded models");
}

// body(shards) for a function that is called on some.
template <typename Body>
gyreResult_t on(gyreGradShards_t shards, const char* function, const Body& body) {
  return gradsync::on(handles().shards, shards, "the sharded model", function, body);
}

gyreResult_t get_place(gyreGradShards_t shards, const char* function, void** place,
                       const std::function<Result<void*>(Shards&)>& body) {
  return on(shards, function, [&](Shards& model) -> Status {
    if (place == nullptr) return invalid_argument("values is NULL");
    GYRE_ASSIGN(*place, body(model));
    return {};
  });
}

Result<gyreGradStep_t> read_step(const gyreGradStep_t* given) {
  gyreGradStep_t step = GYRE_GRAD_STEP_INITIALIZER;
  if (given == nullptr) return invalid_argument("step is NULL");
  GYRE_TRY(check_size("step's", given->size, offsetof(gyreGradStep_t, maxNorm)));
  std::memcpy(&step, given, std::min(given->size, sizeof step));
  const std::pair<const char*, float> numbers[] = {{"learningRate", step.learningRate},
                                                   {"beta1", step.beta1},
                                                   {"beta2", step.beta2},
                                                   {"epsilon", step.epsilon},
                                                   {"weightDecay", step.weightDecay},
                                                   {"momentum", step.momentum},
                                                   {"dampening", step.dampening},
                                                   {"maxNorm", step.maxNorm},
                                                   {"inverseScale", step.inverseScale}};
  for (const auto& [name, value] : numbers)
    if (!std::isfinite(value) || value < 0)
      return invalid_argument(fmt::format("step->{} = {} is no number from 0 on", name, value));
  if (step.beta1 >= 1 || step.beta2 >= 1)
    return invalid_argument(
        fmt::format("step->beta1 = {}, beta2 = {}: both are below 1", step.beta1, step.beta2));
  return step;
}

Status take_step(Shards& shards, const gyreGradStep_t* given, gyreGradStepResult_t* result) {
  if (result != nullptr) GYRE_TRY(check_size("result's", result->size, sizeof result->size));
  GYRE_ASSIGN(const gyreGradStep_t step, read_step(given));
  GYRE_ASSIGN(const ShardStepResult known, shards.step(step));
  if (result == nullptr) return {};
  const gyreGradStepResult_t told = {
      .size = result->size,
      .norm = known.norm,
      .overflow = known.overflow ? 1 : 0,
      .step = known.step,
      .movedBytes = known.moved_bytes,
      .exposedSeconds = static_cast<double>(known.exposed_ns) * 1e-9,
  };
  write_struct(result, told);
  return {};
}

Status list_pieces(Shards& shards, gyreGradPiece_t* pieces, std::size_t* count) {
  if (count == nullptr) return invalid_argument("count is NULL");
  GYRE_ASSIGN(const std::vector<gyreGradPiece_t> all, shards.pieces());
  const std::size_t room = std::exchange(*count, all.size());
  if (pieces == nullptr) return {};
  if (room < all.size())
    return invalid_argument(fmt::format("{} pieces do not fit an array of {}", all.size(), room));
  std::copy(all.begin(), all.end(), pieces);
  return {};
}

}  // namespace
}  // namespace gyre::gradsync

using namespace gyre;
using namespace gyre::gradsync;

gyreResult_t gyreGradShardsCreate(gyreGradShards_t* shards, gyreComm_t comm,
                                  const gyreGradShardTensor_t tensors[], size_t count,
                                  const gyreGradShardsConfig_t* config) {
  return guarded([&] {
    return create(shards, comm, tensors, count, config).while_doing("gyreGradShardsCreate");
  });
}

gyreResult_t gyreGradShardsDestroy(gyreGradShards_t shards) {
  return destroy(handles().shards, shards, "the sharded model");
}

gyreResult_t gyreGradShardsGather(gyreGradShards_t shards, size_t unit) {
  return on(shards, "gyreGradShardsGather", [&](Shards& model) { return model.gather(unit); });
}

gyreResult_t gyreGradShardsRelease(gyreGradShards_t shards, size_t unit) {
  return on(shards, "gyreGradShardsRelease", [&](Shards& model) { return model.release(unit); });
}

gyreResult_t gyreGradShardsParameter(gyreGradShards_t shards, size_t tensor, void** values) {
  return get_place(shards, "gyreGradShardsParameter", values,
                   [&](Shards& model) { return model.parameter(tensor); });
}

gyreResult_t gyreGradShardsGradient(gyreGradShards_t shards, size_t tensor, void** values) {
  return get_place(shards, "gyreGradShardsGradient", values,
                   [&](Shards& model) { return model.gradient(tensor); });
}

gyreResult_t gyreGradShardsReady(gyreGradShards_t shards, size_t tensor) {
  return on(shards, "gyreGradShardsReady", [&](Shards& model) { return model.ready(tensor); });
}

gyreResult_t gyreGradShardsStep(gyreGradShards_t shards, const gyreGradStep_t* step,
                                gyreGradStepResult_t* result) {
  return on(shards, "gyreGradShardsStep",
            [&](Shards& model) { return take_step(model, step, result); });
}

gyreResult_t gyreGradShardsPieces(gyreGradShards_t shards, gyreGradPiece_t* pieces, size_t* count) {
  return on(shards, "gyreGradShardsPieces",
            [&](Shards& model) { return list_pieces(model, pieces, count); });
}

gyreResult_t gyreGradShardsImported(gyreGradShards_t shards, uint64_t step) {
  return on(shards, "gyreGradShardsImported", [&](Shards& model) { return model.imported(step); });
}
