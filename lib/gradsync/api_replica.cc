// The C functions of replicas.
#include "kernels/cpu/elementwise.h"
#include "lib/gradsync/gradsync_api.h"

#include <algorithm>
#include <climits>

namespace gyre::gradsync {
namespace {

Result<std::optional<ElementType>> read_wire(int type) {
  if (type == GYRE_GRAD_WIRE_SAME) return std::optional<ElementType>();
  if (type == gyreFloat16 || type == gyreBfloat16)
    return std::optional(static_cast<ElementType>(type));
  return invalid_argument(fmt::format(
      "config.wireType = {} is not GYRE_GRAD_WIRE_SAME, gyreFloat16 or gyreBfloat16", type));
}

Status check_divisor(const gyreGradConfig_t& config, std::span<const Tensor> tensors) {
  GYRE_TRY(in_range("joinDivisor", config.joinDivisor, 0, 1));
  if (config.joinDivisor == 0) return {};
  if (config.op != gyreAvg) return invalid_argument("config.joinDivisor = 1 is for gyreAvg alone");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!kernels::has_elementwise(tensors[i].type))
      return invalid_argument(
          fmt::format("config.joinDivisor = 1 is for float16, bfloat16 and float32, and {} is {}",
                      call_by_name(tensors, i), element_name(tensors[i].type)));
  return {};
}

Result<ReplicaOptions> read_options(const gyreGradConfig_t* given,
                                    std::span<const Tensor> tensors) {
  GYRE_ASSIGN(const gyreGradConfig_t config,
              read_struct(given, gyreGradConfig_t GYRE_GRAD_CONFIG_INITIALIZER,
                          GYRE_GRAD_CONFIG_MAGIC, offsetof(gyreGradConfig_t, bucketBytes)));
  constexpr std::int64_t max_bytes = std::int64_t{1} << 46;
  ReplicaOptions options;
  GYRE_TRY(in_range("bucketBytes", static_cast<std::int64_t>(config.bucketBytes), 1, max_bytes));
  GYRE_TRY(in_range("firstBucketBytes", static_cast<std::int64_t>(config.firstBucketBytes), 1,
                    max_bytes));
  options.limits = {config.firstBucketBytes, config.bucketBytes};
  std::memcpy(&options.op, &config.op, sizeof options.op);
  if (options.op != gyreSum && options.op != gyreAvg)
    return invalid_argument("config.op is neither gyreSum nor gyreAvg");
  GYRE_ASSIGN(options.wire, read_wire(config.wireType));
  GYRE_TRY(in_range("order", config.order, 0, 1));
  GYRE_TRY(in_range("findUnused", config.findUnused, 0, 1));
  GYRE_TRY(check_divisor(config, tensors));
  if (config.timeoutMs != GYRE_CONFIG_UNDEF_INT)
    GYRE_TRY(in_range("timeoutMs", config.timeoutMs, 1, INT_MAX));
  options.observes_order = config.order == gyreGradOrderObserved;
  options.finds_unused = config.findUnused == 1;
  options.divides_by_active = config.joinDivisor == 1;
  options.timeout_ms = config.timeoutMs;
  options.server = config.server;
  return options;
}

Status create(gyreGrad_t* grad, gyreComm_t comm, const gyreGradTensor_t tensors[],
              std::size_t count, const gyreGradConfig_t* config) {
  if (grad == nullptr) return invalid_argument("grad is NULL");
  *grad = nullptr;
  GYRE_ASSIGN(auto list, read_tensors(tensors, count));
  GYRE_ASSIGN(const ReplicaOptions options, read_options(config, list));
  GYRE_TRY(check_communicator(comm));
  GYRE_TRY(in_range("server", options.server, GYRE_GRAD_NO_SERVER, size_of(comm) - 1));
  GYRE_ASSIGN(auto made, Replica::create(comm, std::move(list), options));
  return keep(handles().replicas, std::move(made), grad, "replicas");
}

// body(replica) for a function that is called on one.
template <typename Body>
gyreResult_t on(gyreGrad_t grad, const char* function, const Body& body) {
  return gradsync::on(handles().replicas, grad, "the replica", function, body);
}

// The same, of one that returns a value.
template <typename Value, typename Body>
gyreResult_t get(gyreGrad_t grad, const char* function, Value* value, const Body& body) {
  return on(grad, function, [&](Replica& replica) -> Status {
    if (value == nullptr) return invalid_argument("the place for the result is NULL");
    GYRE_ASSIGN(*value, body(replica));
    return {};
  });
}

Status get_stats(Replica& replica, gyreGradStats_t* stats) {
  constexpr double ns = 1e-9;
  if (stats == nullptr) return invalid_argument("stats is NULL");
  GYRE_TRY(check_size("stats'", stats->size, sizeof stats->size));
  GYRE_ASSIGN(const ReplicaStats known, replica.stats());
  const gyreGradStats_t told = {
      .size = stats->size,
      .steps = known.steps,
      .buckets = known.buckets,
      .layout = known.layout,
      .wireBytes = known.wire_bytes,
      .computeSeconds = static_cast<double>(known.compute_ns) * ns,
      .communicationSeconds = static_cast<double>(known.communication_ns) * ns,
      .exposedSeconds = static_cast<double>(known.exposed_ns) * ns,
      .straggler = known.slowest.rank,
      .stragglerSeconds = known.slowest.seconds,
      .othersSeconds = known.slowest.others_seconds,
  };
  write_struct(stats, told);
  return {};
}

}  // namespace
}  // namespace gyre::gradsync

using namespace gyre;
using namespace gyre::gradsync;

gyreResult_t gyreGradCreate(gyreGrad_t* grad, gyreComm_t comm, const gyreGradTensor_t tensors[],
                            size_t count, const gyreGradConfig_t* config) {
  return guarded(
      [&] { return create(grad, comm, tensors, count, config).while_doing("gyreGradCreate"); });
}

gyreResult_t gyreGradDestroy(gyreGrad_t grad) {
  return destroy(handles().replicas, grad, "the replica");
}

gyreResult_t gyreGradView(gyreGrad_t grad, size_t tensor, void** view) {
  return get(grad, "gyreGradView", view, [&](Replica& replica) { return replica.view(tensor); });
}

gyreResult_t gyreGradReady(gyreGrad_t grad, size_t tensor, gyreStream_t stream) {
  return on(grad, "gyreGradReady", [&](Replica& replica) { return replica.ready(tensor, stream); });
}

gyreResult_t gyreGradUnused(gyreGrad_t grad, size_t tensor) {
  return on(grad, "gyreGradUnused", [&](Replica& replica) { return replica.unused(tensor); });
}

gyreResult_t gyreGradWait(gyreGrad_t grad) {
  return on(grad, "gyreGradWait", [](Replica& replica) { return replica.wait(); });
}

gyreResult_t gyreGradWasUsed(gyreGrad_t grad, size_t tensor, int* used) {
  return get(grad, "gyreGradWasUsed", used,
             [&](Replica& replica) { return replica.was_used(tensor); });
}

gyreResult_t gyreGradSetSync(gyreGrad_t grad, int sync) {
  return on(grad, "gyreGradSetSync", [&](Replica& replica) {
    if (sync != 0 && sync != 1)
      return invalid_argument(fmt::format("sync is 0 or 1, not {}", sync));
    return replica.set_sync(sync == 1);
  });
}

gyreResult_t gyreGradJoin(gyreGrad_t grad) {
  return on(grad, "gyreGradJoin", [](Replica& replica) { return replica.join(); });
}

gyreResult_t gyreGradBroadcast(gyreGrad_t grad, const gyreGradTensor_t tensors[], size_t count,
                               int root) {
  return on(grad, "gyreGradBroadcast", [&](Replica& replica) -> Status {
    GYRE_ASSIGN(const auto arrays, read_tensors(tensors, count));
    return replica.broadcast_arrays(arrays, root);
  });
}

gyreResult_t gyreGradReturn(gyreGrad_t grad) {
  return on(grad, "gyreGradReturn", [](Replica& replica) { return replica.return_parameters(); });
}

gyreResult_t gyreGradAverageParameters(gyreGrad_t grad) {
  return on(grad, "gyreGradAverageParameters",
            [](Replica& replica) { return replica.average_parameters(); });
}

gyreResult_t gyreGradCompare(gyreGrad_t grad) {
  return on(grad, "gyreGradCompare", [](Replica& replica) { return replica.compare_parameters(); });
}

gyreResult_t gyreGradSetHook(gyreGrad_t grad, const gyreGradHook_t* hook) {
  return on(grad, "gyreGradSetHook", [&](Replica& replica) { return replica.set_hook(hook); });
}

gyreResult_t gyreGradGetStats(gyreGrad_t grad, gyreGradStats_t* stats) {
  return on(grad, "gyreGradGetStats", [&](Replica& replica) { return get_stats(replica, stats); });
}
