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

// The caller of another thread sees the failure last: its process may end with the answer, and what
// peers and the file have not been told is lost then.
Status CommunicatorState::fail(Status why) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = broken_.ok();
    if (is_first) broken_ = why;
    why = broken_;
    // At once: the driver may keep the watch waiting for the very kernels that are to leave.
    if (backend != nullptr) backend->abort();
  }
  if (!membership->failed()) membership->abort(why);
  if (is_first) note_failure(rank_state, why, options.settings.flight_file);
  is_broken_.store(true, std::memory_order_release);
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
