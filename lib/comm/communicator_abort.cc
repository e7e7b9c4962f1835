// How a communicator ends for good: it fails, or its rank aborts it. All ranks are told.
#include "lib/comm/backend.h"
#include "lib/comm/communicator_state.h"

#include <fmt/core.h>

namespace gyre::comm {

Status CommunicatorState::broken() const {
  if (!is_broken_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return broken_;
}

Status CommunicatorState::look_for_failure() {
  Status lasting = broken();
  return lasting.ok() && membership->failed() ? fail(membership->failure()) : lasting;
}

Status CommunicatorState::fail(Status why) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_.ok()) broken_ = why;
    why = broken_;
    // At once: the driver may keep the watch waiting for the very kernels that are to leave.
    if (backend != nullptr) backend->abort();
  }
  const bool is_first = !is_broken_.exchange(true, std::memory_order_acq_rel);
  if (!membership->failed()) membership->abort(why);
  // The peers know. This rank's caller waits for the file, as its process may end with the answer.
  if (is_first) note_failure(rank_state, why, options.settings.flight_file);
  return why;
}

void CommunicatorState::abort() {
  is_aborted_ = true;
  (void)fail(
      Status(Code::Aborted, fmt::format("rank {} called gyreCommAbort", rank)).blame({rank}));
}

void CommunicatorState::remember(const Status& status) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    last_error_ = status.full_text();
  } catch (const std::bad_alloc&) {
    last_error_ = "out of memory";  // short enough to need none
  }
}

std::string CommunicatorState::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_.empty() ? "no error" : last_error_;
}

}  // namespace gyre::comm
