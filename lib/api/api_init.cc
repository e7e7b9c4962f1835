// The C functions that make, ask and end communicators.
#include "lib/api/c_api.h"
#include "lib/api/options.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/wait.h"
#include "lib/comm/group.h"
#include "lib/comm/split_op.h"
#include "lib/rendezvous/rendezvous.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace gyre::comm {
namespace {

Result<trust::UniqueId> decode(const gyreUniqueId& id) {
  trust::EncodedId bytes;
  static_assert(sizeof bytes == sizeof id);
  std::memcpy(bytes.data(), id.internal, bytes.size());
  return trust::decode_unique_id(bytes);
}

Status check_place(int nranks, int rank) {
  if (nranks < 1) return invalid_argument(fmt::format("nranks = {} is not positive", nranks));
  if (rank < 0 || rank >= nranks)
    return invalid_argument(
        fmt::format("rank {} is not from 0 to nranks - 1 = {}", rank, nranks - 1));
  return {};
}

// Of an init: it has joined, or joins in the background.
bool is_under_way(const Status& begun) { return begun.ok() || begun.code() == Code::InProgress; }

// Makes the communicator and its handle and joins now, or at the end of the open group.
Status begin_join(gyreComm_t* comm, const trust::UniqueId& id, int nranks, int rank,
                  CommunicatorOptions options) {
  GYRE_ASSIGN(control::ControlPlane * plane, process().plane(options.settings));
  options.logged_rank = std::make_shared<const LoggedRank>(rank);
  GYRE_ASSIGN(auto made,
              Communicator::join(*plane, process().services, id, nranks, rank, std::move(options)));
  GYRE_ASSIGN(GroupedCall call, process().adopt(std::move(made)));
  const auto handle = call.communicator->handle();
  call.work.joins = true;
  *comm = reinterpret_cast<gyreComm_t>(handle);
  if (caller().group_depth > 0) return keep_in_group(std::move(call));
  std::vector<GroupedCall> calls;
  calls.push_back(std::move(call));
  Status status = carry_out(process().worker, std::move(calls));
  if (is_under_way(status)) return status;
  process().communicators.remove(handle);
  *comm = nullptr;
  return status;
}

// The same by an id that the call itself passes on: whoever has it hears why rank 0 does not join.
Status begin_join_or_renounce(gyreComm_t* comm, control::ControlPlane& plane,
                              const trust::UniqueId& id, int nranks, int rank,
                              CommunicatorOptions options) {
  Status begun = begin_join(comm, id, nranks, rank, std::move(options));
  if (rank == 0 && !is_under_way(begun)) plane.renounce(id, Status(begun).blame({0}));
  return begun;
}

Status init_rank(gyreComm_t* comm, int nranks, const gyreUniqueId& id, int rank,
                 const gyreConfig_t* config) {
  if (comm == nullptr) return invalid_argument("comm is NULL");
  GYRE_TRY(check_place(nranks, rank));
  GYRE_ASSIGN(const trust::UniqueId decoded, decode(id));
  GYRE_ASSIGN(CommunicatorOptions options, make_options(config));
  return begin_join(comm, decoded, nranks, rank, std::move(options));
}

Status init_all(gyreComm_t* comms, int ndev, const int* devlist) {
  if (comms == nullptr) return invalid_argument("comms is NULL");
  if (ndev < 1) return invalid_argument(fmt::format("ndev = {} is not positive", ndev));
  const std::span<gyreComm_t> made_here(comms, static_cast<std::size_t>(ndev));
  std::ranges::fill(made_here, nullptr);
  int no_device = GYRE_DEVICE_HOST;
  GYRE_ASSIGN(const CommunicatorOptions made, make_options(nullptr, &no_device));
  std::vector<CommunicatorOptions> options(static_cast<std::size_t>(ndev), made);
  // Without a list rank i has device i, if there is a driver.
  const bool has_devices = devlist == nullptr && default_device() != GYRE_DEVICE_HOST;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const int device = devlist != nullptr ? devlist[i]
                       : has_devices      ? static_cast<int>(i)
                                          : GYRE_DEVICE_HOST;
    if (device < GYRE_DEVICE_HOST)
      return invalid_argument(fmt::format("devlist[{}] = {} is no device", i, device));
    GYRE_TRY(choose_device(options[i], device).while_doing(fmt::format("devlist[{}]", i)));
  }
  GYRE_ASSIGN(control::ControlPlane * plane, process().plane(made.settings));
  GYRE_ASSIGN(const trust::UniqueId id,
              plane->create_unique_id(control::Audience::this_host, made.settings));
  if (gyreGroupStart() != gyreSuccess) return internal_error("gyreGroupStart failed");
  Status begun;
  for (int rank = 0; rank < ndev && begun.ok(); ++rank)
    begun = caught([&] {
      return begin_join(&comms[rank], id, ndev, rank, options[static_cast<std::size_t>(rank)]);
    });
  // The others would wait for a rank that does not come.
  (void)in_group(nullptr, begun);
  const gyreResult_t ended = gyreGroupEnd();
  if (begun.ok() && ended != gyreSuccess)
    begun = Status(static_cast<Code>(ended), caller().last_error);
  if (begun.ok() || caller().group_depth > 0) return begun;
  for (gyreComm_t& comm : made_here)
    if (comm != nullptr) (void)gyreCommAbort(std::exchange(comm, nullptr));
  return begun;
}

// Tools see this rank waiting for the others.
Result<trust::UniqueId> find_id(control::ControlPlane& plane, const Settings& settings,
                                const rendezvous::LaunchPlace& place) {
  GYRE_ASSIGN(const RankState shown, claim_meeting(process().state_page, plane.identity(),
                                                   place.job_id, place.size, place.rank));
  return rendezvous::meet(plane, settings, place, &process().launcher);
}

Status init_env(gyreComm_t* comm, const gyreConfig_t* config) {
  if (comm == nullptr) return invalid_argument("comm is NULL");
  GYRE_ASSIGN(CommunicatorOptions options, make_options(config));
  std::vector<std::string> warnings;
  GYRE_ASSIGN(rendezvous::LaunchPlace place,
              rendezvous::read_launch_place(options.settings, rendezvous::process_environment(),
                                            &warnings));
  for (const std::string& warning : warnings) log_warn("{}", warning);
  GYRE_ASSIGN(control::ControlPlane * plane, process().plane(options.settings));
  place.earlier_exchanges = process().meetings;
  place.tried = process().tried_id();
  GYRE_ASSIGN(const trust::UniqueId id, find_id(*plane, options.settings, place));
  Status begun =
      begin_join_or_renounce(comm, *plane, id, place.size, place.rank, std::move(options));
  const bool has_met = is_under_way(begun);
  process().note_tried(has_met ? std::nullopt : std::optional(id));
  if (has_met) ++process().meetings;
  return begun;
}

Status split(gyreComm_t comm, int color, int key, gyreComm_t* newcomm, const gyreConfig_t* config) {
  if (newcomm == nullptr) return invalid_argument("newcomm is NULL");
  if (color < 0 && color != GYRE_SPLIT_NOCOLOR)
    return invalid_argument(fmt::format("color {} is negative and not GYRE_SPLIT_NOCOLOR", color));
  GYRE_ASSIGN(auto pin, find_communicator(comm));
  CommunicatorOptions parents = pin->options();
  parents.timeout_ns = pin->timeout_ns();
  GYRE_ASSIGN(CommunicatorOptions options, make_child_options(config, parents));
  options.logged_rank = pin->options().logged_rank;
  *newcomm = nullptr;
  auto splitting =
      std::make_shared<SplitOp>(process(), *pin, color, key, newcomm, std::move(options));
  return submit(std::move(pin), {.resumable = std::move(splitting)}, nullptr);
}

rendezvous::Store wrap(const gyreStore_t& store) {
  rendezvous::Store wrapped;
  wrapped.set = [store](const std::string& key, const std::vector<std::uint8_t>& value) {
    const auto set = [&] { return store.set(store.user, key.c_str(), value.data(), value.size()); };
    if (call_user(set) == 0) return Status();
    return Status(Code::SystemError, fmt::format("the store's set of \"{}\" failed", key));
  };
  wrapped.get = [store](const std::string& key,
                        std::int64_t timeout_ms) -> Result<std::vector<std::uint8_t>> {
    std::vector<std::uint8_t> value(4096);
    std::size_t bytes = value.size();
    const int limit = static_cast<int>(std::min<std::int64_t>(timeout_ms, INT_MAX));
    const auto get = [&] {
      return store.get(store.user, key.c_str(), value.data(), &bytes, limit);
    };
    if (call_user(get) != 0 || bytes > value.size())
      return Status(Code::SystemError,
                    fmt::format("the store's get of \"{}\" failed or timed out", key));
    value.resize(bytes);
    return value;
  };
  return wrapped;
}

Status init_store(gyreComm_t* comm, int nranks, int rank, const gyreStore_t* store, const char* key,
                  const gyreConfig_t* config) {
  if (comm == nullptr) return invalid_argument("comm is NULL");
  if (store == nullptr || store->set == nullptr || store->get == nullptr)
    return invalid_argument("the store, its set or its get is NULL");
  if (key == nullptr || *key == '\0') return invalid_argument("the key is NULL or empty");
  GYRE_TRY(check_place(nranks, rank));
  GYRE_ASSIGN(CommunicatorOptions options, make_options(config));
  GYRE_ASSIGN(control::ControlPlane * plane, process().plane(options.settings));
  GYRE_ASSIGN(const trust::UniqueId id,
              rendezvous::exchange_id_through_store(
                  *plane, wrap(*store), key, rank,
                  rendezvous::audience_of_launch(options.settings,
                                                 rendezvous::process_environment(), nranks),
                  options.settings));
  return begin_join_or_renounce(comm, *plane, id, nranks, rank, std::move(options));
}

// Of a non-blocking one. Other streams may have calls of others before its own.
void wait_for_background(const Communicator& communicator) {
  if (communicator.background_stream() == 0) return;
  if (auto stream = process().streams.pin(communicator.background_stream()))
    (void)wait_for_stream(process().worker, *stream, communicator.wait_policy());
}

// Waits for what is queued on streams; the last pin deletes it.
Status end_while_pinned(gyreComm_t comm, bool abort) {
  GYRE_ASSIGN(auto pin, find_communicator(comm));
  if (caller().group_depth > 0)
    return invalid_usage("a communicator cannot be ended inside a group: call gyreGroupEnd first");
  if (abort) {
    pin->abort();
    // Who asks for a queued call's end finds the communicator until it has come; it comes at once.
    wait_for_background(*pin);
  } else {
    const ExclusiveUse use(*pin);
    GYRE_TRY(use.status());
    // Where the process ends, what is still queued is no reason to stay.
    (void)wait_for_queue(process().worker, *pin);
    pin->backend().await_kernels();
  }
  // Another thread may still hold it for a moment, in which exit() can begin.
  if (!process().ends()) pin->let_leave();
  process().communicators.remove(reinterpret_cast<std::uintptr_t>(comm));
  if (const std::uint64_t background = pin->background_stream(); background != 0) {
    // After an abort, too: what is queued fails at once.
    wait_for_background(*pin);
    if (auto stream = process().streams.pin(background)) process().worker.forget(*stream);
    process().streams.remove(background);
  }
  return {};
}

// A progress thread that has just finished a call, or one that asks for errors, may hold the
// communicator for a moment more. The program may end at once after this, even by _exit(): so it
// returns when the communicator is gone, and the others have been told that this rank left. After
// an abort they have been told already, and another thread may be inside for longer.
Status end(gyreComm_t comm, bool abort) {
  GYRE_TRY(end_while_pinned(comm, abort));
  constexpr std::int64_t max_ns = ns_per_s;
  const auto is_gone = [&] {
    return !process().communicators.knows(reinterpret_cast<std::uintptr_t>(comm));
  };
  if (!abort) (void)look_until(system_clock, without_bell, max_ns, is_gone);
  return {};
}

}  // namespace
}  // namespace gyre::comm

using namespace gyre;
using namespace gyre::comm;

gyreResult_t gyreGetVersion(int* version) {
  return guarded([&]() -> Status {
    if (version == nullptr) return invalid_argument("version is NULL");
    *version = GYRE_VERSION_CODE;
    return {};
  });
}

const char* gyreGetErrorString(gyreResult_t result) {
  return code_text(static_cast<Code>(result)).data();
}

const char* gyreGetLastError(gyreComm_t comm) {
  const char* shown = "out of memory";
  (void)caught([&]() -> Status {
    CallerState& state = caller();
    write_words(state.shown_error, [&] {
      const auto pin = process().communicators.pin(reinterpret_cast<std::uintptr_t>(comm));
      return comm != nullptr && pin ? pin->last_error() : state.last_error;
    });
    shown = state.shown_error.c_str();
    return {};
  });
  return shown;
}

gyreResult_t gyreGetUniqueId(gyreUniqueId* uniqueId) {
  return guarded([&]() -> Status {
    if (uniqueId == nullptr) return invalid_argument("uniqueId is NULL");
    int device = GYRE_CONFIG_UNDEF_INT;
    GYRE_ASSIGN(const CommunicatorOptions options, make_options(nullptr, &device));
    GYRE_ASSIGN(control::ControlPlane * plane, process().plane(options.settings));
    const control::Audience audience =
        rendezvous::audience_of_launch(options.settings, rendezvous::process_environment(), 0);
    GYRE_ASSIGN(const trust::UniqueId id, plane->create_unique_id(audience, options.settings));
    GYRE_ASSIGN(const auto bytes, trust::encode(id));
    std::memcpy(uniqueId->internal, bytes.data(), bytes.size());
    return {};
  });
}

// In a group the others would wait for a rank that is not made.
gyreResult_t gyreCommInitRank(gyreComm_t* comm, int nranks, gyreUniqueId commId, int rank) {
  return in_group(nullptr, caught([&] { return init_rank(comm, nranks, commId, rank, nullptr); }));
}

gyreResult_t gyreCommInitRankConfig(gyreComm_t* comm, int nranks, gyreUniqueId commId, int rank,
                                    gyreConfig_t* config) {
  return in_group(nullptr, caught([&] { return init_rank(comm, nranks, commId, rank, config); }));
}

gyreResult_t gyreCommInitAll(gyreComm_t* comms, int ndev, const int* devlist) {
  return in_group(nullptr, caught([&] { return init_all(comms, ndev, devlist); }));
}

gyreResult_t gyreCommInitEnv(gyreComm_t* comm, gyreConfig_t* config) {
  return in_group(nullptr, caught([&] { return init_env(comm, config); }));
}

gyreResult_t gyreCommInitStore(gyreComm_t* comm, int nranks, int rank, const gyreStore_t* store,
                               const char* key, gyreConfig_t* config) {
  return in_group(nullptr,
                  caught([&] { return init_store(comm, nranks, rank, store, key, config); }));
}

gyreResult_t gyreCommSplit(gyreComm_t comm, int color, int key, gyreComm_t* newcomm,
                           gyreConfig_t* config) {
  return in_group(comm, caught([&] { return split(comm, color, key, newcomm, config); }));
}

gyreResult_t gyreCommFinalize(gyreComm_t comm) {
  return guarded(comm, [&]() -> Status {
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    const bool busy = pin->order.queued.load(std::memory_order_acquire) != 0;
    if (busy && pin->background_stream() != 0) return Status(Code::InProgress, "not done yet");
    GYRE_TRY(wait_for_queue(process().worker, *pin));
    pin->backend().await_kernels();
    // The cause of a kernel that has given up is found later, if only as a suspicion (2 s).
    constexpr std::int64_t max_ns = 5 * ns_per_s;
    const auto is_known = [&] {
      return !pin->look_for_failure().ok() || !pin->backend().has_given_up();
    };
    (void)look_until(system_clock, without_bell, max_ns, is_known);
    return pin->look_for_failure();
  });
}

gyreResult_t gyreCommDestroy(gyreComm_t comm) {
  return guarded(comm, [&] { return end(comm, false); });
}

gyreResult_t gyreCommAbort(gyreComm_t comm) {
  return guarded(comm, [&] { return end(comm, true); });
}

gyreResult_t gyreCommSetTimeout(gyreComm_t comm, int timeoutMs) {
  return guarded(comm, [&]() -> Status {
    if (timeoutMs < 1)
      return invalid_argument(fmt::format("timeoutMs {} is not positive", timeoutMs));
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    if (pin->backend().ordinal() != GYRE_DEVICE_HOST)
      return invalid_usage("a communicator of a GPU keeps its timeout: its kernels have it");
    if (!pin->options().settings.says("GYRE_TIMEOUT")) pin->set_timeout(timeoutMs * ns_per_ms);
    return {};
  });
}

gyreResult_t gyreCommGetAsyncError(gyreComm_t comm, gyreResult_t* asyncError) {
  return guarded(comm, [&]() -> Status {
    if (asyncError == nullptr) return invalid_argument("asyncError is NULL");
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    const auto is_busy = [&] { return pin->order.queued.load(std::memory_order_acquire) != 0; };
    // Whoever asks again and again drives what waits for callers.
    if (is_busy()) process().worker.give_turns();
    // Before the failure is looked up: so that it has that of a call which ends right now.
    const bool is_at_work = is_busy() && pin->background_stream() != 0;
    Status lasting = pin->look_for_failure();
    // Of a call that was refused, the communicator's own stream alone knows.
    if (lasting.ok() && !is_at_work && pin->background_stream() != 0) {
      GYRE_ASSIGN(auto own, find_stream(reinterpret_cast<gyreStream_t>(pin->background_stream())));
      lasting = take_first_error(*own);
    }
    if (!lasting.ok()) pin->remember(lasting);
    *asyncError = to_result(lasting);
    // After an error, too, buffers and handles are in use until the last call has ended.
    if (is_at_work || (lasting.ok() && pin->backend().has_given_up())) *asyncError = gyreInProgress;
    return {};
  });
}

gyreResult_t gyreCommCount(gyreComm_t comm, int* count) {
  return guarded(comm, [&]() -> Status {
    if (count == nullptr) return invalid_argument("count is NULL");
    GYRE_ASSIGN(const auto pin, find_communicator(comm));
    *count = pin->size();
    return {};
  });
}

gyreResult_t gyreCommUserRank(gyreComm_t comm, int* rank) {
  return guarded(comm, [&]() -> Status {
    if (rank == nullptr) return invalid_argument("rank is NULL");
    GYRE_ASSIGN(const auto pin, find_communicator(comm));
    *rank = pin->rank();
    return {};
  });
}

gyreResult_t gyreCommCuDevice(gyreComm_t comm, int* device) {
  return guarded(comm, [&]() -> Status {
    if (device == nullptr) return invalid_argument("device is NULL");
    GYRE_ASSIGN(const auto pin, find_communicator(comm));
    *device = pin->backend().ordinal();
    return {};
  });
}
