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

// The long way of a collective with equal blocks.
[[gnu::noinline]] gyreResult_t begin_even(const CollectiveCall& call, gyreComm_t comm,
                                          gyreStream_t stream) {
  return collective(call.function, comm, stream, [&](Communicator& pin, Request& request) {
    return make_request(pin, call, request);
  });
}

// The same of one that waits, after the short way.
[[gnu::noinline]] gyreResult_t go_on(Communicator& communicator, const CollectiveCall& call,
                                     gyreComm_t comm) {
  const Status status = caught([&]() -> Status {
    Request request;
    GYRE_TRY(make_request(communicator, call, request));
    return carry_on(process().worker, communicator, communicator.take_over(request));
  });
  return in_group(comm, status);
}

// By the short way if it is like one before, and has no stream.
[[gnu::always_inline]] inline gyreResult_t even(const CollectiveCall& call, gyreComm_t comm,
                                                gyreStream_t stream) {
  if (stream != nullptr) return begin_even(call, comm, stream);
  if (auto entry = enter_alone(comm)) [[likely]] {
    const CollectiveOp::Repeated how = entry->repeat(call);
    if (how == CollectiveOp::Repeated::done) [[likely]] {
      entry.leave();
      return gyreSuccess;
    }
    if (how == CollectiveOp::Repeated::waits) return go_on(*entry, call, comm);
  }
  return begin_even(call, comm, nullptr);
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
  return even({{count, raw(datatype), raw(op), 0, Function::all_reduce},
               Collective::all_reduce,
               sendbuff,
               recvbuff},
              comm, stream);
}

gyreResult_t gyreReduce(const void* sendbuff, void* recvbuff, size_t count, gyreDataType_t datatype,
                        gyreRedOp_t op, int root, gyreComm_t comm, gyreStream_t stream) {
  return even({{count, raw(datatype), raw(op), root, Function::reduce},
               Collective::reduce,
               sendbuff,
               recvbuff},
              comm, stream);
}

gyreResult_t gyreBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           gyreDataType_t datatype, int root, gyreComm_t comm,
                           gyreStream_t stream) {
  return even({{count, raw(datatype), 0, root, Function::broadcast},
               Collective::broadcast,
               sendbuff,
               recvbuff},
              comm, stream);
}

gyreResult_t gyreBcast(void* buff, size_t count, gyreDataType_t datatype, int root, gyreComm_t comm,
                       gyreStream_t stream) {
  return gyreBroadcast(buff, buff, count, datatype, root, comm, stream);
}

gyreResult_t gyreReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                               gyreStream_t stream) {
  return even({{recvcount, raw(datatype), raw(op), 0, Function::reduce_scatter},
               Collective::reduce_scatter,
               sendbuff,
               recvbuff},
              comm, stream);
}

gyreResult_t gyreAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream) {
  return even({{sendcount, raw(datatype), 0, 0, Function::all_gather},
               Collective::all_gather,
               sendbuff,
               recvbuff},
              comm, stream);
}

gyreResult_t gyreAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream) {
  return even({{count, raw(datatype), 0, 0, Function::all_to_all},
               Collective::all_to_all,
               sendbuff,
               recvbuff},
              comm, stream);
}

gyreResult_t gyreGather(const void* sendbuff, void* recvbuff, size_t count, gyreDataType_t datatype,
                        int root, gyreComm_t comm, gyreStream_t stream) {
  return even(
      {{count, raw(datatype), 0, root, Function::gather}, Collective::gather, sendbuff, recvbuff},
      comm, stream);
}

gyreResult_t gyreScatter(const void* sendbuff, void* recvbuff, size_t count,
                         gyreDataType_t datatype, int root, gyreComm_t comm, gyreStream_t stream) {
  return even(
      {{count, raw(datatype), 0, root, Function::scatter}, Collective::scatter, sendbuff, recvbuff},
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

// A byte that everybody needs from everybody. The short way keeps it here.
gyreResult_t gyreBarrier(gyreComm_t comm, gyreStream_t stream) {
  std::byte byte{};
  return even({{1, raw(gyreUint8), 0, 0, Function::barrier}, Collective::all_reduce, &byte, &byte},
              comm, stream);
}
