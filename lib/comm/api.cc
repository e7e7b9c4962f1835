// The C functions that move data: they check arguments, make a Request, and hand it on.
#include "lib/comm/calls.h"

#include <fmt/format.h>

#include <cstring>

namespace gyre::comm {
namespace {

// What a caller passed for an enumeration may be no value of it, and C++ must not look at it as
// one.
template <typename Enumeration>
int raw(const Enumeration& value) {
  int number = 0;
  static_assert(sizeof number == sizeof value);
  std::memcpy(&number, &value, sizeof number);
  return number;
}

// The end of user space on 64-bit machines with 48-bit addresses (x86-64, arm64).
constexpr std::uint64_t address_end = 1ULL << 47;

Status check_buffer(std::string_view name, const void* buffer, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  if (buffer == nullptr) return invalid_argument(fmt::format("{} is NULL", name));
  if (bytes > address_end || address > address_end - bytes)
    return invalid_argument(
        fmt::format("{} = {} with {} bytes does not fit the address space", name, buffer, bytes));
  return {};
}

// Equal buffers are in place; anything else may not overlap.
Status check_overlap(const void* send, const void* receive, std::uint64_t bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(send);
  const auto b = reinterpret_cast<std::uintptr_t>(receive);
  if (a == b || a + bytes <= b || b + bytes <= a) return {};
  return invalid_argument(fmt::format(
      "sendbuff {} and recvbuff {} overlap within {} bytes: they must be equal (in place) or apart",
      send, receive, bytes));
}

Result<std::uint64_t> check_count(std::size_t count, int type) {
  if (type < 0 || type >= gyreNumTypes)
    return invalid_argument(fmt::format("datatype {} is not known", type));
  const auto bytes = checked_multiply(count, element_bytes(static_cast<ElementType>(type)));
  if (!bytes || *bytes > address_end)
    return invalid_argument(fmt::format("count {} of {} is more than any memory", count,
                                        element_name(static_cast<ElementType>(type))));
  return *bytes;
}

Status check_op(const Communicator& communicator, int op, Request& request) {
  if (op < 0) return invalid_argument(fmt::format("op {} is not known", op));
  if (op >= gyreNumOps) {
    GYRE_ASSIGN(request.op, communicator.find_made_op(op, request.type, request.pre_scalar));
    return {};
  }
  request.op = static_cast<ReduceOp>(op);
  if (!kernels::supported(request.type, request.op))
    return invalid_argument(fmt::format("{} is for integers, not for {}", op_name(request.op),
                                        element_name(request.type)));
  return {};
}

// Carries the request out, queues it on its stream, or keeps it for the end of the group.
Status submit(HandleTable<Communicator>::Pin pin, const Request& request, gyreStream_t stream) {
  GroupedCall call;
  if (stream != nullptr) {
    GYRE_ASSIGN(call.stream, find_stream(stream));
  } else if (caller().group_depth == 0) {
    const Entry entry(*pin);
    GYRE_TRY(entry.status());
    return carry_out_now(*pin, request);
  }
  call.communicator = std::move(pin);
  call.request = request;
  if (caller().group_depth > 0) {
    caller().group.push_back(std::move(call));
    return {};
  }
  std::vector<GroupedCall> calls;
  calls.push_back(std::move(call));
  return carry_out(std::move(calls));
}

Status all_reduce(const void* sendbuff, void* recvbuff, std::size_t count, int datatype, int op,
                  gyreComm_t comm, gyreStream_t stream) {
  GYRE_ASSIGN(auto pin, find_communicator(comm));
  const auto checked = [&]() -> Result<Request> {
    GYRE_ASSIGN(const std::uint64_t bytes, check_count(count, datatype));
    if (bytes > 0) {
      GYRE_TRY(check_buffer("sendbuff", sendbuff, bytes));
      GYRE_TRY(check_buffer("recvbuff", recvbuff, bytes));
      GYRE_TRY(check_overlap(sendbuff, recvbuff, bytes));
    }
    Request request;
    request.collective = plan::Collective::all_reduce;
    request.input = static_cast<const std::byte*>(sendbuff);
    request.output = static_cast<std::byte*>(recvbuff);
    request.count = count;
    request.type = static_cast<ElementType>(datatype);
    GYRE_TRY(check_op(*pin, op, request));
    return request;
  };
  Result<Request> request = checked();
  if (!request.ok()) return std::move(request).status().while_doing("gyreAllReduce");
  return submit(std::move(pin), *request, stream);
}

// A refused call spoils the open group: nothing of it will be carried out.
gyreResult_t in_group(gyreComm_t comm, Status status) {
  CallerState& state = caller();
  if (!status.ok() && state.group_depth > 0 && state.group_error.ok()) state.group_error = status;
  return answer(comm, std::move(status));
}

Status end_group() {
  CallerState& state = caller();
  if (state.group_depth == 0) return invalid_usage("gyreGroupEnd without gyreGroupStart");
  if (--state.group_depth > 0) return {};
  std::vector<GroupedCall> calls = std::exchange(state.group, {});
  Status spoiled = std::exchange(state.group_error, Status());
  if (!spoiled.ok()) return std::move(spoiled).while_doing("nothing of the group was carried out");
  return carry_out(std::move(calls));
}

Status make_op(gyreRedOp_t* op, const void* scalar, int datatype, int residence, gyreComm_t comm) {
  if (op == nullptr) return invalid_argument("op is NULL");
  if (scalar == nullptr) return invalid_argument("scalar is NULL");
  if (residence != gyreScalarDevice && residence != gyreScalarHostImmediate)
    return invalid_argument(fmt::format("residence {} is not known", residence));
  GYRE_ASSIGN(auto pin, find_communicator(comm));
  GYRE_ASSIGN(const std::uint64_t bytes, check_count(1, datatype));
  std::uint64_t value = 0;
  std::memcpy(&value, scalar, bytes);
  const int made = pin->make_op(static_cast<ElementType>(datatype), value);
  std::memcpy(op, &made, sizeof made);
  return {};
}

}  // namespace
}  // namespace gyre::comm

using namespace gyre;
using namespace gyre::comm;

gyreResult_t gyreAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                           gyreStream_t stream) {
  return in_group(comm, caught([&] {
                    return all_reduce(sendbuff, recvbuff, count, raw(datatype), raw(op), comm,
                                      stream);
                  }));
}

gyreResult_t gyreGroupStart(void) {
  ++caller().group_depth;
  return gyreSuccess;
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
