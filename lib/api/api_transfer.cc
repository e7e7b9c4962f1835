// The C functions that send and receive.
#include "lib/api/arguments.h"
#include "lib/api/c_api.h"
#include "lib/comm/device_scope.h"

#include <fmt/core.h>

#include <utility>

namespace gyre::comm {
namespace {

Function function_of(const TransferCall& call) {
  return call.sends ? Function::send : Function::receive;
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
  const bool sends = call.sends;
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
  Transfer transfer = call.transfer();
  if (is_drivers) transfer.stream = std::exchange(stream, nullptr);
  if (is_at_once(communicator, stream)) transfer.asked = &asked;
  Request request;
  request.function = function_of(call);
  request.count = call.count;
  request.type = transfer.type;
  request.transfers = std::make_shared<const std::vector<Transfer>>(1, transfer);
  return request;
}

// Whether its arguments are as usual: an error is for the long way.
bool is_usual(const TransferCall& call) {
  constexpr std::size_t max_count = std::size_t{1} << 32;  // more is no matter of a short way
  if (call.type < 0 || call.type >= gyreNumTypes || call.count > max_count || call.peer < 0 ||
      call.tag < (call.sends ? 0 : any_tag))
    return false;
  const std::uint64_t bytes = call.count * element_bytes(static_cast<ElementType>(call.type));
  const auto address = reinterpret_cast<std::uintptr_t>(call.sends ? call.send : call.receive);
  return address <= address_end - bytes && (address != 0 || bytes == 0);
}

[[gnu::noinline]] gyreResult_t go_on(Communicator& communicator, gyreComm_t comm) {
  const Status status = caught(
      [&] { return carry_on(process().worker, communicator, communicator.take_over_transfer()); });
  return in_group(comm, status);
}

// The short way of a call that is not like the last.
[[gnu::noinline]] ImmediateTransfer::Outcome transfer_now(Communicator& communicator,
                                                          const TransferCall& call) {
  if (!is_usual(call)) return ImmediateTransfer::Outcome::not_this;
  return communicator.transfer_now(call.transfer(), call.count);
}

// The same in a group, at whose end it will be carried out.
[[gnu::noinline]] bool joins_short_group(const TransferCall& call, gyreComm_t comm) {
  Process* const here = known_process();
  if (here == nullptr || is_outside_groups()) return false;
  CallerState& state = caller();
  const auto handle = reinterpret_cast<std::uintptr_t>(comm);
  if (!state.group.empty() || !state.group_error.ok()) return false;
  if (state.short_group.add_again(handle, call)) return true;
  if (!state.short_group.takes(handle) || !is_usual(call)) return false;
  const Transfer transfer = call.transfer();
  const auto entry = here->communicators.enter(handle);
  if (!entry || !entry->may_transfer_now(transfer)) return false;
  state.short_group.add(handle, call, transfer);
  return true;
}

[[gnu::noinline]] gyreResult_t exchange_long(const TransferCall& call, gyreComm_t comm,
                                             gyreStream_t stream) {
  const Status status = caught([&]() -> Status {
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    const DeviceScope scope(*pin);
    exec::StreamState asked;  // outlives the call
    Result<Request> request = checked(*pin, call, stream, asked);
    if (!request.ok())
      return std::move(request).status().while_doing(function_name(function_of(call)));
    return submit(std::move(pin), {.request = std::move(*request)}, stream);
  });
  return in_group(comm, status);
}

// Of one without a stream, once its like has been tried as the last one.
[[gnu::noinline]] gyreResult_t exchange_alone(HandleTable<Communicator>::Entry& entry,
                                              ImmediateTransfer::Outcome outcome,
                                              const TransferCall& call, gyreComm_t comm) {
  using Outcome = ImmediateTransfer::Outcome;
  if (outcome == Outcome::not_this) outcome = transfer_now(*entry, call);
  if (outcome == Outcome::waits) return go_on(*entry, comm);
  entry.leave();
  return outcome == Outcome::done ? gyreSuccess : exchange_long(call, comm, nullptr);
}

[[gnu::noinline]] gyreResult_t exchange_in_group(const TransferCall& call, gyreComm_t comm) {
  return joins_short_group(call, comm) ? gyreSuccess : exchange_long(call, comm, nullptr);
}

[[gnu::always_inline]] inline gyreResult_t send(const TransferShape& shape, const void* buffer,
                                                gyreComm_t comm, gyreStream_t stream) {
  if (stream != nullptr) return exchange_long({shape, buffer}, comm, stream);
  auto entry = enter_alone(comm);
  if (!entry) return exchange_in_group({shape, buffer}, comm);
  const auto outcome = entry->send_again(shape, buffer);
  if (outcome != ImmediateTransfer::Outcome::done) [[unlikely]]
    return exchange_alone(entry, outcome, {shape, buffer}, comm);
  entry.leave();
  return gyreSuccess;
}

gyreResult_t receive(const TransferCall& call, gyreComm_t comm, gyreStream_t stream) {
  if (stream != nullptr) return exchange_long(call, comm, stream);
  auto entry = enter_alone(comm);
  if (!entry) return exchange_in_group(call, comm);
  const auto outcome = entry->receive_again(call);
  if (outcome != ImmediateTransfer::Outcome::done) [[unlikely]]
    return exchange_alone(entry, outcome, call, comm);
  entry.leave();
  return gyreSuccess;
}

}  // namespace
}  // namespace gyre::comm

using namespace gyre::comm;

gyreResult_t gyreSend(const void* sendbuff, size_t count, gyreDataType_t datatype, int peer,
                      gyreComm_t comm, gyreStream_t stream) {
  return send({count, raw(datatype), peer, 0, true}, sendbuff, comm, stream);
}

gyreResult_t gyreRecv(void* recvbuff, size_t count, gyreDataType_t datatype, int peer,
                      gyreComm_t comm, gyreStream_t stream) {
  return receive({{count, raw(datatype), peer, 0, false}, nullptr, recvbuff}, comm, stream);
}

gyreResult_t gyreSendTagged(const void* sendbuff, size_t count, gyreDataType_t datatype, int peer,
                            int tag, gyreComm_t comm, gyreStream_t stream) {
  return send({count, raw(datatype), peer, tag, true}, sendbuff, comm, stream);
}

gyreResult_t gyreRecvTagged(void* recvbuff, size_t count, gyreDataType_t datatype, int peer,
                            int tag, int* source, int* receivedTag, gyreComm_t comm,
                            gyreStream_t stream) {
  return receive({{count, raw(datatype), peer, tag, false}, nullptr, recvbuff, source, receivedTag},
                 comm, stream);
}
