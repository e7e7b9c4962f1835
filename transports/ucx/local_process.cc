#include "transports/ucx/local_process.h"

#include "lib/base/clock.h"
#include "lib/transport/handover.h"
#include "lib/trust/peer_process.h"

#include <optional>
#include <poll.h>
#include <utility>

namespace gyre::transport {
namespace {

// A failure is told to all ranks within 100 ms.
constexpr std::int64_t patience_ns = 200 * ns_per_ms;

}  // namespace

Status LocalProcess::look() {
  Status ended = listener_.empty() ? Status() : ask();
  if (ended.ok()) return ended;
  const std::int64_t now_ns = SystemClock::read();
  if (ended_since_ns_ == 0) ended_since_ns_ = now_ns;
  return now_ns - ended_since_ns_ < patience_ns ? Status() : ended;
}

Status LocalProcess::ask() {
  if (!is_found_) GYRE_TRY(find());
  pollfd ended{process_.get(), POLLIN, 0};
  if (!process_.has_value() || poll(&ended, 1, 0) <= 0) return {};
  return Status(Code::RemoteError, "its process has ended");
}

Status LocalProcess::find() {
  Result<std::optional<FileDescriptor>> socket = connect_to_listener(listener_);
  if (socket.status().code() == Code::SystemError) return {};  // of this process: later, perhaps
  if (!socket.ok()) return std::move(socket).status();
  if (!socket->has_value()) return {};  // busy: later
  process_ = trust::open_peer_process((*socket)->get());
  is_found_ = true;
  return {};
}

}  // namespace gyre::transport
