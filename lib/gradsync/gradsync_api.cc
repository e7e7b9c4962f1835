#include "lib/gradsync/gradsync_api.h"

#include "lib/base/thread_state.h"

#include <atomic>
#include <mutex>
#include <pthread.h>
#include <string>

namespace gyre::gradsync {
namespace {

struct LastError {
  std::string text = "no error";
  std::string shown;  // what gyreGradGetLastError returned
};

}  // namespace

namespace {

std::atomic<Handles*> current{nullptr};
std::mutex making;
Handles* before_fork = nullptr;  // in a child

// What the parent has made has threads there, and communicators.
void forget_in_child() {
  if (Handles* here = current.exchange(nullptr); here != nullptr) {
    here->before_fork = before_fork;
    before_fork = here;
  }
  making.unlock();
}

}  // namespace

// Never destroyed: other threads may be inside when the process ends.
Handles& handles() {
  Handles* known = current.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  const std::lock_guard lock(making);
  known = current.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  static const int hooked =
      pthread_atfork([] { making.lock(); }, [] { making.unlock(); }, forget_in_child);
  if (hooked != 0) throw std::bad_alloc();
  known = new Handles;
  current.store(known, std::memory_order_release);
  return *known;
}

Status unknown(const char* what, const void* handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  for (Handles* one = before_fork; one != nullptr; one = one->before_fork)
    if (one->replicas.knows(number) || one->shards.knows(number) || one->meshes.knows(number) ||
        one->stale_replicas.knows(number) || one->parallels.knows(number))
      return invalid_usage(
          fmt::format("{} {} belongs to the parent process: this process was forked from it, and "
                      "must make its own",
                      what, handle));
  return invalid_argument(fmt::format(
      "{} {} is no handle of this process: it was destroyed, or never was one", what, handle));
}

// A thread that has no memory for its state hears the code alone.
gyreResult_t answer(const Status& status) noexcept {
  if (status.ok()) [[likely]]
    return gyreSuccess;
  (void)caught([&]() -> Status {
    write_words(thread_state<LastError>().text, [&] { return std::string(status.message()); });
    return {};
  });
  return static_cast<gyreResult_t>(status.code());
}

Status in_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return invalid_argument(
      fmt::format("config.{} = {} is not from {} to {}", field, value, least, most));
}

Status check_communicator(gyreComm_t comm) {
  int device = GYRE_DEVICE_HOST;
  GYRE_TRY(checked(gyreCommCuDevice(comm, &device)));
  if (device == GYRE_DEVICE_HOST) return {};
  return invalid_usage(fmt::format(
      "comm works on memory of CUDA device {}; gradient sync works on host memory", device));
}

}  // namespace gyre::gradsync

const char* gyreGradGetLastError(void) {
  const char* shown = "out of memory";
  (void)gyre::caught([&]() -> gyre::Status {
    auto& last = gyre::thread_state<gyre::gradsync::LastError>();
    gyre::write_words(last.shown, [&] { return last.text; });
    shown = last.shown.c_str();
    return {};
  });
  return shown;
}
