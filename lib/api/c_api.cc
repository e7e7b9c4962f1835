#include "lib/api/c_api.h"

#include "lib/base/log.h"

#include <fmt/core.h>

#include <utility>

namespace gyre::comm {

namespace {

Status unknown(const char* what, std::uint64_t handle) {
  if (process().was_known_before_fork(handle))
    return invalid_usage(
        fmt::format("the {} {:#x} belongs to the parent process: this process was forked from it, "
                    "and must make its own",
                    what, handle));
  return invalid_argument(
      fmt::format("{:#x} is no {} of this process: it was destroyed, or never was one (CUDA "
                  "streams work on CUDA communicators only)",
                  handle, what));
}

}  // namespace

// A thread that has no memory for its state hears the code alone.
gyreResult_t answer(const Status& status) noexcept {
  if (status.ok()) [[likely]]
    return gyreSuccess;
  (void)caught([&]() -> Status {
    write_words(caller().last_error, [&] { return status.full_text(); });
    if (status.code() != Code::InProgress) log_info(Subsystem::call, "{}", status.full_text());
    return {};
  });
  return to_result(status);
}

gyreResult_t answer(gyreComm_t comm, const Status& status) noexcept {
  if (status.ok()) [[likely]]
    return gyreSuccess;
  (void)caught([&]() -> Status {
    if (comm == nullptr) return {};
    if (auto pin = process().communicators.pin(reinterpret_cast<std::uintptr_t>(comm)))
      pin->remember(status);
    return {};
  });
  return answer(status);
}

Result<HandleTable<Communicator>::Pin> find_communicator(gyreComm_t comm) {
  if (comm == nullptr) return invalid_argument("the communicator is NULL");
  auto pin = process().communicators.pin(reinterpret_cast<std::uintptr_t>(comm));
  if (!pin) return unknown("communicator", reinterpret_cast<std::uintptr_t>(comm));
  return pin;
}

Result<HandleTable<HostStream>::Pin> find_stream(gyreStream_t stream) {
  auto pin = process().streams.pin(reinterpret_cast<std::uintptr_t>(stream));
  if (!pin) return unknown("host stream", reinterpret_cast<std::uintptr_t>(stream));
  return pin;
}

Status take_first_error(HostStream& stream) {
  const std::lock_guard lock(stream.mutex);
  return std::exchange(stream.first_error, Status());
}

bool is_at_once(const Communicator& communicator, gyreStream_t stream) {
  return stream == nullptr && communicator.background_stream() == 0 && caller().group_depth == 0;
}

Status enter_and_carry_out(Communicator& communicator, const Request& request) {
  const ExclusiveUse use(communicator);
  GYRE_TRY(use.status());
  return carry_out_now(process().worker, communicator, request);
}

Status move_short_group(std::vector<GroupedCall>& calls) {
  ShortGroup& group = caller().short_group;
  const std::span<const Transfer> all = group.all();
  group.count = 0;
  for (const Transfer& one : all) {
    GroupedCall call;
    GYRE_ASSIGN(call.communicator, find_communicator(reinterpret_cast<gyreComm_t>(group.handle)));
    Request& request = call.work.request;
    request.function = one.sends ? Function::send : Function::receive;
    request.count = one.bytes / element_bytes(one.type);
    request.type = one.type;
    request.transfers = std::make_shared<const std::vector<Transfer>>(1, one);
    calls.push_back(std::move(call));
  }
  return {};
}

Status keep_in_group(GroupedCall call) {
  GYRE_TRY(move_short_group(caller().group));
  caller().group.push_back(std::move(call));
  return {};
}

// A non-blocking communicator's calls without a stream go to its own.
Status submit(HandleTable<Communicator>::Pin pin, Work work, gyreStream_t stream) {
  GroupedCall call;
  const bool background = stream == nullptr && pin->background_stream() != 0;
  if (background) stream = reinterpret_cast<gyreStream_t>(pin->background_stream());
  if (stream != nullptr) {
    GYRE_ASSIGN(call.stream, find_stream(stream));
  } else if (caller().group_depth == 0 && work.resumable == nullptr) {
    return enter_and_carry_out(*pin, work.request);
  }
  call.communicator = std::move(pin);
  call.work = std::move(work);
  call.background = background;
  if (caller().group_depth > 0) return keep_in_group(std::move(call));
  std::vector<GroupedCall> calls;
  calls.push_back(std::move(call));
  return carry_out(process().worker, std::move(calls));
}

}  // namespace gyre::comm
