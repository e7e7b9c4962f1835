#include "lib/bootstrap/dial.h"

#include "lib/base/clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace gyre::bootstrap {
namespace {

// A root that accepts a thousand processes needs about a millisecond for each handshake.
constexpr std::int64_t attempt_most_ns = 4 * ns_per_s;
constexpr std::int64_t first_pause_ns = 5 * ns_per_ms;
constexpr std::int64_t pause_most_ns = 250 * ns_per_ms;

}  // namespace

Dial::Dial(ControlThread& thread, const trust::Tls& tls,
           std::shared_ptr<const trust::SessionKey> key, std::vector<trust::SocketAddress> ways,
           OnSession on_session)
    : thread_(thread),
      tls_(tls),
      key_(std::move(key)),
      ways_(std::move(ways)),
      on_session_(std::move(on_session)),
      pause_ns_(first_pause_ns) {}

std::string Dial::target() const {
  std::string text;
  for (const auto& way : ways_) text += (text.empty() ? "" : " or ") + trust::format_address(way);
  return text;
}

std::int64_t Dial::tick(std::int64_t now_ns) {
  if (ways_.empty()) {
    problem_ = "it has no address that can be reached from here";
    return never_ns;
  }
  if (now_ns < next_ns_) return next_ns_;
  if (session_ != nullptr)
    give_up(Status(Code::Timeout, "no answer"), now_ns);
  else
    attempt(now_ns);
  return next_ns_;
}

void Dial::attempt(std::int64_t now_ns) {
  next_ns_ = now_ns + attempt_most_ns;
  const Status begun = begin();
  if (!begun.ok()) give_up(begun, now_ns);
}

Status Dial::begin() {
  bool pending = false;
  const trust::SocketAddress& way = ways_[attempts_ % ways_.size()];
  GYRE_ASSIGN(FileDescriptor socket, trust::begin_connect(way, &pending));
  connecting_ = pending;
  GYRE_ASSIGN(session_, trust::SecureSession::start(tls_, std::move(socket),
                                                    trust::SessionRole::client, key_));
  // Writable at once, or as soon as it is connected.
  GYRE_ASSIGN(watch_, thread_.watch(session_->descriptor(), EPOLLIN | EPOLLOUT,
                                    [this](std::uint32_t) { on_socket(); }));
  return {};
}

void Dial::on_socket() {
  if (connecting_) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(session_->descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return give_up(Status::from_errno("connecting", error), SystemClock::read());
    connecting_ = false;
  }
  const Status status = session_->advance();
  if (!status.ok()) return give_up(status, SystemClock::read());
  if (!session_->established())
    return watch_.change(session_->wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
  watch_.reset();
  next_ns_ = never_ns;
  on_session_(std::move(session_));
}

void Dial::give_up(const Status& why, std::int64_t now_ns) {
  problem_ =
      fmt::format("{}: {}", trust::format_address(ways_[attempts_ % ways_.size()]), why.message());
  watch_.reset();
  thread_.retire(std::move(session_));
  ++attempts_;
  // The other ways are tried without a pause between.
  const bool around = attempts_ % ways_.size() == 0;
  next_ns_ = around ? now_ns + pause_ns_ : now_ns;
  if (around) pause_ns_ = std::min(2 * pause_ns_, pause_most_ns);
  thread_.due_at(next_ns_);
}

}  // namespace gyre::bootstrap
