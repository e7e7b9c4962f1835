// The C functions of groups and of made reductions.
#include "lib/api/arguments.h"
#include "lib/api/c_api.h"
#include "lib/comm/device_scope.h"

#include <fmt/core.h>

namespace gyre::comm {
namespace {

Status end_group() {
  CallerState& state = caller();
  if (state.group_depth == 0) return invalid_usage("gyreGroupEnd without gyreGroupStart");
  if (--state.group_depth > 0) return {};
  std::vector<GroupedCall> calls = std::exchange(state.group, {});
  Status spoiled = std::exchange(state.group_error, Status());
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
