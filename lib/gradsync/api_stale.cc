// The C functions of bounded staleness.
#include "lib/gradsync/gradsync_api.h"

#include <climits>

namespace gyre::gradsync {
namespace {

Result<StaleOptions> read_options(const gyreGradStaleConfig_t* given) {
  constexpr int max_bound = 1000;
  GYRE_ASSIGN(const gyreGradStaleConfig_t config,
              read_struct(given, gyreGradStaleConfig_t GYRE_GRAD_STALE_CONFIG_INITIALIZER,
                          GYRE_GRAD_STALE_MAGIC, offsetof(gyreGradStaleConfig_t, staleness)));
  GYRE_TRY(in_range("staleness", config.staleness, 0, max_bound));
  GYRE_TRY(in_range("patienceUs", config.patienceUs, -1, INT_MAX));
  if (config.timeoutMs != GYRE_CONFIG_UNDEF_INT)
    GYRE_TRY(in_range("timeoutMs", config.timeoutMs, 1, INT_MAX));
  StaleOptions options;
  options.bound = static_cast<std::uint64_t>(config.staleness);
  if (config.patienceUs >= 0) options.patience_ns = std::int64_t{config.patienceUs} * 1000;
  options.timeout_ms = config.timeoutMs;
  return options;
}

Status create(gyreGradStale_t* stale, gyreComm_t comm, const gyreGradTensor_t tensors[],
              std::size_t count, const gyreGradStaleConfig_t* config) {
  if (stale == nullptr) return invalid_argument("stale is NULL");
  *stale = nullptr;
  GYRE_ASSIGN(auto list, read_tensors(tensors, count));
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].gradient == nullptr)
      return invalid_argument(
          fmt::format("{} has no memory for its gradient: rounds need it to lie with the caller",
                      call_by_name(list, i)));
  GYRE_ASSIGN(const StaleOptions options, read_options(config));
  GYRE_TRY(check_communicator(comm));
  GYRE_ASSIGN(auto made, StaleReplica::create(comm, std::move(list), options));
  return keep(handles().stale_replicas, std::move(made), stale, "replicas");
}

template <typename Body>
gyreResult_t on(gyreGradStale_t stale, const char* function, const Body& body) {
  return gradsync::on(handles().stale_replicas, stale, "the replica", function, body);
}

Result<StaleReplica::Apply> read_update(gyreGradUpdateRound_t update, void* user) {
  if (update == nullptr) return invalid_argument("update is NULL");
  return StaleReplica::Apply([update, user](const gyreGradRound_t& round) {
    return checked(update(user, &round)).while_doing("in the update");
  });
}

Status get_stats(StaleReplica& replica, gyreGradStaleStats_t* stats) {
  constexpr double ns = 1e-9;
  if (stats == nullptr) return invalid_argument("stats is NULL");
  GYRE_TRY(check_size("stats'", stats->size, sizeof stats->size));
  GYRE_ASSIGN(const StaleStats known, replica.stats());
  const gyreGradStaleStats_t told = {
      .size = stats->size,
      .rounds = known.rounds,
      .ownRounds = known.own_rounds,
      .maxStaleness = known.max_staleness,
      .computeSeconds = static_cast<double>(known.compute_ns) * ns,
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

gyreResult_t gyreGradStaleCreate(gyreGradStale_t* stale, gyreComm_t comm,
                                 const gyreGradTensor_t tensors[], size_t count,
                                 const gyreGradStaleConfig_t* config) {
  return guarded([&] {
    return create(stale, comm, tensors, count, config).while_doing("gyreGradStaleCreate");
  });
}

gyreResult_t gyreGradStaleDestroy(gyreGradStale_t stale) {
  return destroy(handles().stale_replicas, stale, "the replica");
}

gyreResult_t gyreGradStaleStep(gyreGradStale_t stale, gyreGradUpdateRound_t update, void* user) {
  return on(stale, "gyreGradStaleStep", [&](StaleReplica& replica) -> Status {
    GYRE_ASSIGN(const auto apply, read_update(update, user));
    return replica.step(apply);
  });
}

gyreResult_t gyreGradStaleEnd(gyreGradStale_t stale, gyreGradUpdateRound_t update, void* user) {
  return on(stale, "gyreGradStaleEnd", [&](StaleReplica& replica) -> Status {
    GYRE_ASSIGN(const auto apply, read_update(update, user));
    return replica.end(apply);
  });
}

gyreResult_t gyreGradStaleGetStats(gyreGradStale_t stale, gyreGradStaleStats_t* stats) {
  return on(stale, "gyreGradStaleGetStats",
            [&](StaleReplica& replica) { return get_stats(replica, stats); });
}
