#include "transports/rdma/farewell.h"

#include "lib/base/clock.h"

#include <time.h>
#include <utility>

namespace gyre::transport {
namespace {

// A notice needs one round trip; a peer that is gone does not answer it.
constexpr std::int64_t farewell_ns = 100 * ns_per_ms;

void rest() {
  const timespec pause = {0, 50'000};
  nanosleep(&pause, nullptr);
}

}  // namespace

RdmaFarewell::~RdmaFarewell() {
  for (;;) {
    const std::lock_guard lock(mutex_);
    reap();
    if (departing_.empty()) return;
    rest();
  }
}

void RdmaFarewell::see_off(std::unique_ptr<RdmaQueues> queues, loaded::VerbsMemory key,
                           Mapping notes) {
  const std::lock_guard lock(mutex_);
  reap();
  std::shared_ptr<RdmaDevice> device = queues->shared_device();
  departing_.push_back({std::move(device), std::move(notes), std::move(key), std::move(queues),
                        SystemClock::read() + farewell_ns});
}

void RdmaFarewell::reap() {
  const std::int64_t now_ns = SystemClock::read();
  std::erase_if(departing_, [&](const Departing& one) {
    return now_ns >= one.until_ns || one.queues->has_closed();
  });
}

}  // namespace gyre::transport
