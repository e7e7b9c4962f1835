// The C functions that send and receive.
#include "lib/api/arguments.h"
#include "lib/api/c_api.h"
#include "lib/comm/device_scope.h"

#include <fmt/core.h>

#include <utility>

namespace gyre::comm {
namespace {

struct TransferCall {
  Function function;
  const void* send;
  void* receive;
  std::size_t count;
  int type;
  int peer;
  int tag;
  int* source = nullptr;
  int* received_tag = nullptr;
};

Transfer transfer_of(const TransferCall& call) {
  const auto type = static_cast<ElementType>(call.type);
  return {.sends = call.function == Function::send,
          .input = static_cast<const std::byte*>(call.send),
          .output = static_cast<std::byte*>(call.receive),
          .bytes = call.count * element_bytes(type),
          .type = type,
          .peer = call.peer,
          .tag = call.tag,
          .source = call.source,
          .received_tag = call.received_tag};
}

// Kernels tell messages apart by their order alone.
Status check_without_tags(const TransferCall& call) {
  if (call.tag != 0 || call.peer == any_source || call.source != nullptr ||
      call.received_tag != nullptr)
    return invalid_usage(
        "tags and GYRE_ANY_SOURCE work on host communicators only: on a device, the sends to a "
        "rank match its receives in order");
  return {};
}

Result<Request> checked(const Communicator& communicator, const TransferCall& call,
                        gyreStream_t& stream, exec::StreamState& asked) {
  const bool sends = call.function == Function::send;
  const bool anyone = !sends && call.peer == any_source;
  if (!anyone && (call.peer < 0 || call.peer >= communicator.size()))
    return invalid_argument(fmt::format("peer {} is not from 0 to {}{}", call.peer,
                                        communicator.size() - 1,
                                        sends ? "" : ", nor GYRE_ANY_SOURCE"));
  if (call.tag < 0 && (sends || call.tag != any_tag))
    return invalid_argument(fmt::format("tag {} is negative", call.tag));
  GYRE_ASSIGN(const std::uint64_t bytes, check_count(call.count, call.type));
  if (!communicator.backend().has_tags()) GYRE_TRY(check_without_tags(call));
  GYRE_ASSIGN(const bool is_drivers, communicator.backend().take_stream(stream, asked));
  GYRE_TRY(check_buffer(communicator, sends ? "sendbuff" : "recvbuff",
                        sends ? call.send : call.receive, bytes));
  Transfer transfer = transfer_of(call);
  if (is_drivers) transfer.stream = std::exchange(stream, nullptr);
  if (is_at_once(communicator, stream)) transfer.asked = &asked;
  Request request;
  request.function = call.function;
  request.count = call.count;
  request.type = transfer.type;
  request.transfers = std::make_shared<const std::vector<Transfer>>(1, transfer);
  return request;
}

// Whether its arguments are as usual: an error is for the long way.
bool is_usual(const TransferCall& call) {
  constexpr std::size_t max_count = std::size_t{1} << 32;  // more is no matter of a short way
  const bool sends = call.function == Function::send;
  if (call.type < 0 || call.type >= gyreNumTypes || call.count > max_count || call.peer < 0 ||
      call.tag < (sends ? 0 : any_tag))
    return false;
  const std::uint64_t bytes = call.count * element_bytes(static_cast<ElementType>(call.type));
  const auto address = reinterpret_cast<std::uintptr_t>(sends ? call.send : call.receive);
  return address <= address_end - bytes && (address != 0 || bytes == 0);
}

[[gnu::noinline]] gyreResult_t go_on(Communicator& communicator, gyreComm_t comm,
                                     const Transfer& transfer) {
  const Status status = caught([&] {
    return carry_on(process().worker, communicator, communicator.take_over({&transfer, 1}));
  });
  return in_group(comm, status);
}

// The short way. False: it is not this call.
bool is_immediate(Process& here, const Transfer& transfer, std::size_t count, gyreComm_t comm,
                  gyreResult_t& result) {
  if (here.worker.has_work_of_callers()) return false;
  const auto entry = here.communicators.enter(reinterpret_cast<std::uintptr_t>(comm));
  if (!entry) return false;
  const auto outcome = entry->transfer_now(transfer, count);
  if (outcome == ImmediateTransfer::Outcome::not_this) return false;
  result = gyreSuccess;
  if (outcome == ImmediateTransfer::Outcome::waits) [[unlikely]]
    result = go_on(*entry, comm, transfer);
  return true;
}

// The same in a group, at whose end it will be carried out.
bool joins_short_group(Process& here, const Transfer& transfer, gyreComm_t comm) {
  CallerState& state = caller();
  const auto handle = reinterpret_cast<std::uintptr_t>(comm);
  if (!state.group.empty() || !state.group_error.ok() || !state.short_group.takes(handle))
    return false;
  const auto entry = here.communicators.enter(handle);
  if (!entry || !entry->may_transfer_now(transfer)) return false;
  state.short_group.add(handle, transfer);
  return true;
}

gyreResult_t exchange(const TransferCall& call, gyreComm_t comm, gyreStream_t stream) {
  gyreResult_t result = gyreSuccess;
  Process* const here = stream == nullptr ? known_process() : nullptr;
  if (here != nullptr && is_usual(call)) {
    const Transfer transfer = transfer_of(call);
    const bool is_done = is_outside_groups()
                             ? is_immediate(*here, transfer, call.count, comm, result)
                             : joins_short_group(*here, transfer, comm);
    if (is_done) return result;
  }
  const Status status = caught([&]() -> Status {
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    const DeviceScope scope(*pin);
    exec::StreamState asked;  // outlives the call
    Result<Request> request = checked(*pin, call, stream, asked);
    if (!request.ok()) return std::move(request).status().while_doing(function_name(call.function));
    return submit(std::move(pin), {.request = std::move(*request)}, stream);
  });
  return in_group(comm, status);
}

}  // namespace
}  // namespace gyre::comm

using namespace gyre::comm;

gyreResult_t gyreSend(const void* sendbuff, size_t count, gyreDataType_t datatype, int peer,
                      gyreComm_t comm, gyreStream_t stream) {
  return exchange({Function::send, sendbuff, nullptr, count, raw(datatype), peer, 0}, comm, stream);
}

gyreResult_t gyreRecv(void* recvbuff, size_t count, gyreDataType_t datatype, int peer,
                      gyreComm_t comm, gyreStream_t stream) {
  return exchange({Function::receive, nullptr, recvbuff, count, raw(datatype), peer, 0}, comm,
                  stream);
}

gyreResult_t gyreSendTagged(const void* sendbuff, size_t count, gyreDataType_t datatype, int peer,
                            int tag, gyreComm_t comm, gyreStream_t stream) {
  return exchange({Function::send, sendbuff, nullptr, count, raw(datatype), peer, tag}, comm,
                  stream);
}

gyreResult_t gyreRecvTagged(void* recvbuff, size_t count, gyreDataType_t datatype, int peer,
                            int tag, int* source, int* receivedTag, gyreComm_t comm,
                            gyreStream_t stream) {
  return exchange(
      {Function::receive, nullptr, recvbuff, count, raw(datatype), peer, tag, source, receivedTag},
      comm, stream);
}
