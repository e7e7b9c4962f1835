#include "lib/bootstrap/link.h"

#include "lib/base/clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace gyre::bootstrap {
namespace {

// A sign of life a second, or three in the limit if that is shorter.
std::int64_t ping_period_ns(std::int64_t limit_ns) { return std::min(ns_per_s, limit_ns / 3); }

bool is_local(int socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

}  // namespace

Link::Link(ControlThread& thread, PeerProcesses& processes, LinkOwner& owner,
           std::unique_ptr<trust::SecureSession> session, Role first_role)
    : role(first_role),
      thread_(thread),
      processes_(processes),
      owner_(owner),
      session_(std::move(session)) {}

Status Link::open() {
  heard_ns_ = said_ns_ = SystemClock::read();
  GYRE_ASSIGN(watch_, thread_.watch(session_->descriptor(), EPOLLIN | EPOLLOUT,
                                    [this](std::uint32_t) { on_socket(); }));
  // Elsewhere, and where the kernel does not tell, the socket's end and silence remain.
  if (is_local(session_->descriptor()))
    process_watch_ = processes_.watch(session_->descriptor(), [this] { on_peer_exit(); });
  return {};
}

void Link::send(Kind kind, std::span<const std::uint8_t> body) {
  if (ended_) return;
  said_ns_ = SystemClock::read();
  Status sent = session_->send(static_cast<std::uint8_t>(kind), body);
  // Only bytes leave here; what arrives is taken in order at the socket's next event, and so is an
  // error: the caller may be in the middle of something.
  if (sent.ok()) sent = session_->transmit();
  watch_.change(sent.ok() && session_->wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
  if (!sent.ok()) thread_.due_at(0);
}

void Link::on_socket() {
  read_all();
  if (!ended_) watch_.change(session_->wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// One helping; epoll comes back for more.
void Link::read_all() {
  const Status status = session_->advance();
  if (session_->heard()) heard_ns_ = SystemClock::read();
  while (!ended_) {
    const std::optional<trust::Frame> frame = session_->receive();
    if (!frame) break;
    owner_.on_frame(*this, *frame);
  }
  if (!status.ok()) end(status);
}

// Its socket holds everything that it said before it died: hear that first, it may name the cause.
void Link::on_peer_exit() {
  process_watch_.reset();
  do {
    read_all();
  } while (!ended_ && session_->heard());
  end(Status(Code::RemoteError, "its process ended"));
}

void Link::close() {
  ended_ = true;
  watch_.reset();
  process_watch_.reset();
}

void Link::end(const Status& how) {
  if (ended_) return;
  close();
  owner_.on_end(*this, how);
}

void Link::set_liveness(std::int64_t limit_ns) {
  limit_ns_ = limit_ns;
  thread_.due_at(0);
}

std::int64_t Link::tick(std::int64_t now_ns, std::int64_t overslept_ns) {
  if (ended_) return never_ns;
  if (!session_->failure().ok()) {
    on_socket();
    return never_ns;
  }
  if (limit_ns_ == 0) return never_ns;
  heard_ns_ = std::min(now_ns, heard_ns_ + overslept_ns);
  if (now_ns - heard_ns_ >= limit_ns_) {
    owner_.on_silence(*this, std::exchange(limit_ns_, 0));
    return never_ns;
  }
  const std::int64_t period = ping_period_ns(limit_ns_);
  if (now_ns - said_ns_ >= period) send(Kind::ping, {});
  return std::min(said_ns_ + period, heard_ns_ + limit_ns_);
}

}  // namespace gyre::bootstrap
