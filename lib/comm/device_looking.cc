// How DeviceBackend looks at its kernels and turns failures into errors. On the watch's thread.
#include "lib/comm/device_backend.h"

#include <fmt/core.h>

namespace gyre::comm {

bool DeviceBackend::look() {
  if (state_.membership->failed()) (void)state_.fail(state_.membership->failure());
  DeviceResources::KernelStatus seen = resources_->look();
  const std::int64_t now_ns = system_clock.now_ns();
  const bool asks = seen.asks >= 0 && state_.call_history != nullptr;
  if (!seen.why.ok() && (asks || seen.is_symptom)) {
    if (asks) state_.ask(seen.asks);
    suspicion_.begin(std::move(seen.why), now_ns);
  } else if (!seen.why.ok()) {
    (void)state_.fail(std::move(seen.why));
  }
  if (suspicion_.held() && state_.membership->failed())
    (void)state_.fail(state_.membership->failure());
  if (suspicion_.held() && (suspicion_.ripe(now_ns) || !state_.broken().ok())) {
    (void)state_.fail(suspicion_.take());
    suspicion_.clear();
  }
  // A graph may bring a kernel at any time.
  if (state_.membership->failed()) (void)state_.fail(state_.membership->failure());
  if (!state_.broken().ok()) resources_->abort();
  if (!state_.broken().ok() && !seen.running) claimed_.claim->give_back();
  if (!seen.running) {
    asked_ns_ = begun_ns_ = 0;
    state_.rank_state.end_wait(WaitLane::kernels);
    return suspicion_.held();
  }
  watch_kernel(seen, now_ns);
  return true;
}

// One that runs for long: what it waits for is shown, and whoever may keep it waiting is asked.
void DeviceBackend::watch_kernel(const DeviceResources::KernelStatus& seen, std::int64_t now_ns) {
  constexpr std::int64_t asks_after_ns = 250 * ns_per_ms;
  if (asked_ns_ == 0) asked_ns_ = now_ns;
  if (begun_ns_ == 0 || seen.starts != starts_) {
    starts_ = seen.starts;
    begun_ns_ = now_ns;
    state_.rank_state.end_wait(WaitLane::kernels);
  }
  const std::int64_t for_ns = now_ns - begun_ns_;
  if (for_ns > asks_after_ns) {
    WaitRecord wait;
    wait.phase = WaitPhase::moving;
    wait.what = seen.waits.what;
    wait.peer = seen.waits.peer;
    state_.rank_state.tell_wait(WaitLane::kernels, wait);
  }
  if (seen.waits.what == BlockedOn::stream && state_.options.timeout_ns > 0 &&
      for_ns > state_.options.timeout_ns)
    (void)state_.fail(
        Status(Code::Timeout,
               fmt::format("a kernel of rank {} has not begun for {} s: earlier work on its stream "
                           "has not ended, or other kernels occupy device {}{}",
                           state_.rank, state_.options.timeout_ns / ns_per_s, device_.ordinal(),
                           shares_gpu_.load(std::memory_order_relaxed)
                               ? ", or its stream shares a hardware queue with the stream of "
                                 "another rank of this process, whose kernel waits for this one: "
                                 "set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA begins"
                               : ""))
            .blame({state_.rank}));
  if (state_.call_history == nullptr || now_ns - asked_ns_ < asks_after_ns) return;
  asked_ns_ = now_ns;
  for (int peer = 0; peer < state_.size; ++peer) state_.ask(peer);
}

}  // namespace gyre::comm
