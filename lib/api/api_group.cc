// The C functions of groups and of made reductions.
#include "lib/api/arguments.h"
#include "lib/api/c_api.h"
#include "lib/comm/device_scope.h"

#include <fmt/core.h>

#include <optional>
#include <span>
#include <utility>

namespace gyre::comm {
namespace {

// Nothing: it is for the long way.
std::optional<Status> carry_out_short(ShortGroup& group) {
  Process& here = process();
  if (here.worker.has_work_of_callers()) return std::nullopt;
  const auto entry = here.communicators.enter(group.handle);
  if (!entry) return std::nullopt;
  const auto outcome = entry->transfer_now(group);
  if (outcome == ImmediateTransfer::Outcome::not_this) return std::nullopt;
  if (outcome == ImmediateTransfer::Outcome::done) [[likely]]
    return Status();
  const std::span<const Transfer> left = group.all();
  group.count = 0;
  Status status = carry_on(here.worker, *entry, entry->take_over(left));
  if (!status.ok()) entry->remember(status);
  return status;
}

Status end_group() {
  CallerState& state = caller();
  if (state.group_depth == 0) return invalid_usage("gyreGroupEnd without gyreGroupStart");
  if (--state.group_depth > 0) return {};
  if (state.short_group.count > 0 && state.group_error.ok())
    if (auto ended = carry_out_short(state.short_group)) return *std::move(ended);
  std::vector<GroupedCall> calls = std::exchange(state.group, {});
  Status spoiled = std::exchange(state.group_error, Status());
  if (spoiled.ok()) spoiled = move_short_group(calls);
  state.short_group.count = 0;
  if (!spoiled.ok())
    return JoiningCalls(calls)
        .give_up(std::move(spoiled))
        .while_doing("nothing of the group was carried out");
  return carry_out(process().worker, std::move(calls));
}

Status make_op(gyreRedOp_t* op, const void* scalar, int datatype, int residence, gyreComm_t comm) {
  if (op == nullptr) return invalid_argument("op is NULL");
  if (scalar == nullptr) return invalid_argument("scalar is NULL");
  if (residence != gyreScalarDevice && residence != gyreScalarHostImmediate)
    return invalid_argument(fmt::format("residence {} is not known", residence));
  GYRE_ASSIGN(auto pin, find_communicator(comm));
  GYRE_ASSIGN(const std::uint64_t bytes, check_count(1, datatype));
  std::uint64_t value = 0;
  if (residence == gyreScalarDevice) {
    const DeviceScope scope(*pin);
    GYRE_TRY(pin->backend().fetch(&value, scalar, bytes));
  } else {
    std::memcpy(&value, scalar, bytes);
  }
  GYRE_ASSIGN(const int made, pin->make_op(static_cast<ElementType>(datatype), value));
  std::memcpy(op, &made, sizeof made);
  return {};
}

}  // namespace

gyreResult_t in_group(gyreComm_t comm, const Status& status) noexcept {
  if (status.ok()) [[likely]]
    return gyreSuccess;
  (void)caught([&]() -> Status {
    CallerState& state = caller();
    if (state.group_depth > 0 && state.group_error.ok()) state.group_error = status;
    return {};
  });
  return answer(comm, status);
}

}  // namespace gyre::comm

using namespace gyre;
using namespace gyre::comm;

gyreResult_t gyreGroupStart(void) {
  return guarded([] {
    ++caller().group_depth;
    return Status();
  });
}

gyreResult_t gyreGroupEnd(void) { return guarded(end_group); }

gyreResult_t gyreRedOpCreatePreMulSum(gyreRedOp_t* op, void* scalar, gyreDataType_t datatype,
                                      gyreScalarResidence_t residence, gyreComm_t comm) {
  return guarded(comm, [&] { return make_op(op, scalar, raw(datatype), raw(residence), comm); });
}

gyreResult_t gyreRedOpDestroy(gyreRedOp_t op, gyreComm_t comm) {
  return guarded(comm, [&]() -> Status {
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    return pin->destroy_op(raw(op));
  });
}
