// The C functions of the collectives: they check arguments, make a Request, and hand it on.
#include "lib/api/arguments.h"
#include "lib/api/c_api.h"
#include "lib/comm/device_scope.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace gyre::comm {
namespace {

using plan::Collective;

// A collective that waits, after the short way: `make` gives its Request.
template <typename Make>
[[gnu::noinline]] gyreResult_t go_on(Communicator& communicator, gyreComm_t comm, Make&& make) {
  const Status status = caught([&]() -> Status {
    Request request;
    GYRE_TRY(make(communicator, request));
    return carry_on(process().worker, communicator, communicator.take_over(request));
  });
  return in_group(comm, status);
}

// The short way of a call without a stream that is like the one before. False: it is not this call.
template <typename Make>
bool is_repeated(const CollectiveCall& call, gyreComm_t comm, Make&& make, gyreResult_t& result) {
  Process* const here = known_process();
  if (here == nullptr || !is_outside_groups() || here->worker.has_work_of_callers()) [[unlikely]]
    return false;
  const auto entry = here->communicators.enter(reinterpret_cast<std::uintptr_t>(comm));
  if (!entry) [[unlikely]]
    return false;
  const CollectiveOp::Repeated how = entry->repeat(call);
  if (how == CollectiveOp::Repeated::not_this) return false;
  result = gyreSuccess;
  if (how == CollectiveOp::Repeated::waits) [[unlikely]]
    result = go_on(*entry, comm, make);
  return true;
}

// `make` fills the arguments into a Request of that communicator.
template <typename Make>
[[gnu::noinline]] gyreResult_t collective(Function function, gyreComm_t comm, gyreStream_t stream,
                                          Make&& make) {
  const Status status = caught([&]() -> Status {
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    const DeviceScope scope(*pin);
    Request request;
    if (Status made = make(*pin, request); !made.ok()) [[unlikely]]
      return std::move(made).while_doing(function_name(function));
    exec::StreamState asked;  // outlives the call
    const Result<bool> is_drivers = pin->backend().take_stream(stream, asked);
    if (!is_drivers.ok()) return Status(is_drivers.status()).while_doing(function_name(function));
    if (*is_drivers) request.stream = std::exchange(stream, nullptr);
    if (is_at_once(*pin, stream)) [[likely]] {
      request.asked = &asked;
      return enter_and_carry_out(*pin, request);
    }
    return submit(std::move(pin), {.request = std::move(request)}, stream);
  });
  return in_group(comm, status);
}

gyreResult_t even(const CollectiveCall& call, gyreComm_t comm, gyreStream_t stream) {
  const auto make = [&call](const Communicator& pin, Request& request) {
    return make_request(pin, call, request);
  };
  gyreResult_t result = gyreSuccess;
  if (stream == nullptr && is_repeated(call, comm, make, result)) [[likely]]
    return result;
  return collective(call.function, comm, stream, make);
}

std::uint64_t end_of(const std::vector<plan::Extent>& blocks) {
  std::uint64_t end = 0;
  for (const plan::Extent& block : blocks)
    if (block.bytes > 0) end = std::max(end, block.offset + block.bytes);
  return end;
}

std::uint64_t bytes_of(const std::vector<plan::Extent>& blocks) {
  return std::accumulate(
      blocks.begin(), blocks.end(), std::uint64_t{0},
      [](std::uint64_t sum, const plan::Extent& block) { return sum + block.bytes; });
}

// The same lengths, each at the buffer's beginning: of a side that has one block only.
std::vector<plan::Extent> alone(std::vector<plan::Extent> blocks) {
  for (plan::Extent& block : blocks) block.offset = 0;
  return blocks;
}

// Buffers of a v-function: apart, or equal where the own block lies in the other side.
Status place(const Communicator& communicator, Request& request, const void* send,
             std::uint64_t send_bytes, void* receive, std::uint64_t receive_bytes,
             std::uint64_t own_offset) {
  GYRE_TRY(check_buffer(communicator, "sendbuff", send, send_bytes));
  GYRE_TRY(check_buffer(communicator, "recvbuff", receive, receive_bytes));
  if (send_bytes > 0) request.input = static_cast<const std::byte*>(send);
  if (receive_bytes > 0) request.output = static_cast<std::byte*>(receive);
  if (send_bytes == 0 || receive_bytes == 0) return {};
  const bool gathers = request.collective == Collective::all_gather;
  const auto from = reinterpret_cast<std::uintptr_t>(send);
  const auto to = reinterpret_cast<std::uintptr_t>(receive);
  if (request.collective != Collective::all_to_all)
    request.in_place = gathers ? from == to + own_offset : to == from + own_offset;
  if (request.in_place || from + send_bytes <= to || to + receive_bytes <= from) return {};
  return invalid_argument(fmt::format(
      "sendbuff {} ({} bytes) and recvbuff {} ({} bytes) overlap{}", send, send_bytes, receive,
      receive_bytes,
      request.collective == Collective::all_to_all ? "" : ": they must be apart, or in place"));
}

Request uneven_request(Function function, Collective collective, int type,
                       std::vector<plan::Extent> input, std::vector<plan::Extent> output) {
  Request request;
  request.function = function;
  request.collective = collective;
  request.type = static_cast<ElementType>(type);
  const std::uint64_t bytes =
      collective == Collective::all_gather ? bytes_of(output) : bytes_of(input);
  request.count = bytes / element_bytes(request.type);
  request.tables =
      std::make_shared<const BlockTables>(BlockTables{std::move(input), std::move(output)});
  return request;
}

}  // namespace
}  // namespace gyre::comm

using namespace gyre;
using namespace gyre::comm;
using plan::Collective;

gyreResult_t gyreAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                           gyreStream_t stream) {
  return even({Function::all_reduce, Collective::all_reduce, sendbuff, recvbuff, count,
               raw(datatype), raw(op), 0},
              comm, stream);
}

gyreResult_t gyreReduce(const void* sendbuff, void* recvbuff, size_t count, gyreDataType_t datatype,
                        gyreRedOp_t op, int root, gyreComm_t comm, gyreStream_t stream) {
  return even({Function::reduce, Collective::reduce, sendbuff, recvbuff, count, raw(datatype),
               raw(op), root},
              comm, stream);
}

gyreResult_t gyreBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           gyreDataType_t datatype, int root, gyreComm_t comm,
                           gyreStream_t stream) {
  return even({Function::broadcast, Collective::broadcast, sendbuff, recvbuff, count, raw(datatype),
               0, root},
              comm, stream);
}

gyreResult_t gyreBcast(void* buff, size_t count, gyreDataType_t datatype, int root, gyreComm_t comm,
                       gyreStream_t stream) {
  return gyreBroadcast(buff, buff, count, datatype, root, comm, stream);
}

gyreResult_t gyreReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                               gyreStream_t stream) {
  return even({Function::reduce_scatter, Collective::reduce_scatter, sendbuff, recvbuff, recvcount,
               raw(datatype), raw(op), 0},
              comm, stream);
}

gyreResult_t gyreAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream) {
  return even({Function::all_gather, Collective::all_gather, sendbuff, recvbuff, sendcount,
               raw(datatype), 0, 0},
              comm, stream);
}

gyreResult_t gyreAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream) {
  return even({Function::all_to_all, Collective::all_to_all, sendbuff, recvbuff, count,
               raw(datatype), 0, 0},
              comm, stream);
}

gyreResult_t gyreGather(const void* sendbuff, void* recvbuff, size_t count, gyreDataType_t datatype,
                        int root, gyreComm_t comm, gyreStream_t stream) {
  return even(
      {Function::gather, Collective::gather, sendbuff, recvbuff, count, raw(datatype), 0, root},
      comm, stream);
}

gyreResult_t gyreScatter(const void* sendbuff, void* recvbuff, size_t count,
                         gyreDataType_t datatype, int root, gyreComm_t comm, gyreStream_t stream) {
  return even(
      {Function::scatter, Collective::scatter, sendbuff, recvbuff, count, raw(datatype), 0, root},
      comm, stream);
}

gyreResult_t gyreAlltoAllv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                           void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                           gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream) {
  const int type = raw(datatype);
  const auto make = [&](const Communicator& pin, Request& request) -> Status {
    GYRE_ASSIGN(auto input,
                checked_blocks({"sendcounts", "sdispls", sendcounts, sdispls}, type, pin.size()));
    GYRE_ASSIGN(auto output,
                checked_blocks({"recvcounts", "rdispls", recvcounts, rdispls}, type, pin.size()));
    const std::uint64_t send_bytes = end_of(input), receive_bytes = end_of(output);
    request = uneven_request(Function::all_to_all_v, Collective::all_to_all, type, std::move(input),
                             std::move(output));
    return place(pin, request, sendbuff, send_bytes, recvbuff, receive_bytes, 0);
  };
  return collective(Function::all_to_all_v, comm, stream, make);
}

gyreResult_t gyreAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                            const size_t recvcounts[], const size_t displs[],
                            gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream) {
  const int type = raw(datatype);
  const auto make = [&](const Communicator& pin, Request& request) -> Status {
    GYRE_ASSIGN(auto output,
                checked_blocks({"recvcounts", "displs", recvcounts, displs}, type, pin.size()));
    const auto rank = static_cast<std::size_t>(pin.rank());
    if (recvcounts[rank] != sendcount)
      return invalid_argument(fmt::format("sendcount {} is not recvcounts[{}] = {}", sendcount,
                                          rank, recvcounts[rank]));
    const plan::Extent own = output[rank];
    const std::uint64_t receive_bytes = end_of(output);
    auto input = alone(output);
    request = uneven_request(Function::all_gather_v, Collective::all_gather, type, std::move(input),
                             std::move(output));
    return place(pin, request, sendbuff, own.bytes, recvbuff, receive_bytes, own.offset);
  };
  return collective(Function::all_gather_v, comm, stream, make);
}

gyreResult_t gyreReduceScatterv(const void* sendbuff, void* recvbuff, const size_t recvcounts[],
                                gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                gyreStream_t stream) {
  const int type = raw(datatype);
  const auto make = [&](const Communicator& pin, Request& request) -> Status {
    GYRE_ASSIGN(auto input,
                checked_blocks({"recvcounts", "", recvcounts, nullptr}, type, pin.size()));
    const plan::Extent own = input[static_cast<std::size_t>(pin.rank())];
    const std::uint64_t send_bytes = end_of(input);
    auto output = alone(input);
    request = uneven_request(Function::reduce_scatter_v, Collective::reduce_scatter, type,
                             std::move(input), std::move(output));
    GYRE_TRY(check_op(pin, raw(op), request));
    return place(pin, request, sendbuff, send_bytes, recvbuff, own.bytes, own.offset);
  };
  return collective(Function::reduce_scatter_v, comm, stream, make);
}

// A byte that everybody needs from everybody.
gyreResult_t gyreBarrier(gyreComm_t comm, gyreStream_t stream) {
  const auto make = [](Communicator& pin, Request& request) -> Status {
    request.function = Function::barrier;
    request.count = 1;
    request.input = request.output = pin.backend().barrier_byte();
    request.in_place = true;
    return {};
  };
  CollectiveCall call{.function = Function::barrier, .count = 1};
  call.type = static_cast<int>(ElementType::uint8);
  gyreResult_t result = gyreSuccess;
  if (stream == nullptr && is_repeated(call, comm, make, result)) [[likely]]
    return result;
  return collective(Function::barrier, comm, stream, make);
}
