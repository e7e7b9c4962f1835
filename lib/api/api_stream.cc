// The C functions of host streams.
#include "lib/api/c_api.h"

#include <fmt/core.h>

namespace gyre::comm {
namespace {

bool is_empty(HostStream& stream) {
  const std::lock_guard lock(stream.mutex);
  return stream.entries.empty();
}

WaitPolicy policy_of(HostStream& stream) {
  const std::lock_guard lock(stream.mutex);
  const bool works = stream.by_caller && !stream.entries.empty() &&
                     !stream.entries.front().parts.empty() &&
                     stream.entries.front().parts.front().communicator;
  if (works) return stream.entries.front().parts.front().communicator->wait_policy();
  return {.spins = 200, .yields = 16};
}

// Every queued operation has a deadline of its own, so this ends. An error if the process does
// first.
Status drain(HostStream& stream) {
  return process().worker.run_until(
      stream.done, [&] { return is_empty(stream); }, policy_of(stream));
}

Status create(gyreStream_t* stream, unsigned int flags) {
  if (stream == nullptr) return invalid_argument("stream is NULL");
  if ((flags & ~static_cast<unsigned int>(GYRE_STREAM_BY_CALLER)) != 0)
    return invalid_argument(
        fmt::format("flags {:#x} are not known: the only flag is GYRE_STREAM_BY_CALLER", flags));
  const std::uint64_t handle =
      process().streams.insert(std::make_unique<HostStream>((flags & GYRE_STREAM_BY_CALLER) != 0));
  if (handle == 0) return Status(Code::SystemError, "there are 2^20 host streams already");
  *stream = reinterpret_cast<gyreStream_t>(handle);
  return {};
}

Status destroy(gyreStream_t stream) {
  GYRE_ASSIGN(auto pin, find_stream(stream));
  const Status drained = drain(*pin);
  process().streams.remove(reinterpret_cast<std::uintptr_t>(stream));
  process().worker.forget(*pin);
  GYRE_TRY(drained);
  return take_first_error(*pin);
}

Status queue(gyreStream_t stream, HostStream::QueuedWork entry) {
  GYRE_ASSIGN(auto pin, find_stream(stream));
  return process().worker.queue(std::move(pin), std::move(entry));
}

Status wait_for(gyreStream_t stream, gyreStream_t other) {
  if (stream == other) return invalid_argument("a stream cannot wait for itself");
  GYRE_TRY(find_stream(stream).status());
  HostStream::QueuedWork mark, wait;
  mark.mark = wait.wait_for = std::make_shared<StreamMark>();
  GYRE_TRY(queue(other, std::move(mark)));
  return queue(stream, std::move(wait));
}

}  // namespace
}  // namespace gyre::comm

using namespace gyre;
using namespace gyre::comm;

gyreResult_t gyreStreamCreate(gyreStream_t* stream) {
  return guarded([&] { return create(stream, 0); });
}

gyreResult_t gyreStreamCreateWithFlags(gyreStream_t* stream, unsigned int flags) {
  return guarded([&] { return create(stream, flags); });
}

gyreResult_t gyreStreamDestroy(gyreStream_t stream) {
  return guarded([&] { return destroy(stream); });
}

gyreResult_t gyreStreamSynchronize(gyreStream_t stream) {
  return guarded([&]() -> Status {
    GYRE_ASSIGN(auto pin, find_stream(stream));
    GYRE_TRY(drain(*pin));
    return take_first_error(*pin);
  });
}

gyreResult_t gyreStreamQuery(gyreStream_t stream) {
  return guarded([&]() -> Status {
    GYRE_ASSIGN(auto pin, find_stream(stream));
    process().worker.give_turn(*pin);
    const std::lock_guard lock(pin->mutex);
    if (!pin->first_error.ok()) return pin->first_error;
    if (pin->entries.empty()) return {};
    return Status(Code::InProgress, fmt::format("{} entries are queued", pin->entries.size()));
  });
}

gyreResult_t gyreStreamWait(gyreStream_t stream, gyreStream_t other) {
  return guarded([&] { return wait_for(stream, other); });
}

gyreResult_t gyreStreamAddCallback(gyreStream_t stream, gyreStreamCallback_t callback, void* user) {
  return guarded([&]() -> Status {
    if (callback == nullptr) return invalid_argument("callback is NULL");
    HostStream::QueuedWork entry;
    entry.callback = [=](const Status& status) { callback(stream, to_result(status), user); };
    return queue(stream, std::move(entry));
  });
}
