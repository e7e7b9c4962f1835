#include "lib/control/control_dialer.h"

#include "lib/base/clock.h"

#include <fmt/core.h>

#include <algorithm>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace gyre::control {
namespace {

// A root that accepts a thousand processes needs about a millisecond for each handshake.
constexpr std::int64_t max_attempt_ns = 4 * ns_per_s;
constexpr std::int64_t first_pause_ns = 5 * ns_per_ms;
constexpr std::int64_t max_pause_ns = 250 * ns_per_ms;

}  // namespace

Destination Destination::of(const trust::ProcessIdentity& process,
                            const trust::ProcessIdentity& self) {
  Destination destination{.host = process.host, .listener_name = process.listener_name};
  auto& ways = destination.ways;
  if (process.host == self.host && process.net_namespace == self.net_namespace) {
    const auto local = trust::abstract_address(process.listener_name);
    if (local.ok()) ways.push_back(*local);
  }
  for (const std::string& text : process.addresses) {
    const auto address = trust::parse_address(text);
    if (address.ok()) ways.push_back(*address);
  }
  return destination;
}

ControlDialer::ControlDialer(Trunks& trunks, std::shared_ptr<const trust::SessionKey> key,
                             Destination destination, OnLink on_link)
    : trunks_(trunks),
      key_(std::move(key)),
      destination_(std::move(destination)),
      on_link_(std::move(on_link)),
      pause_ns_(first_pause_ns) {}

std::string ControlDialer::target() const {
  std::string text;
  for (const auto& way : destination_.ways)
    text += (text.empty() ? "" : " or ") + trust::format_address(way);
  return text;
}

std::int64_t ControlDialer::tick(std::int64_t now_ns) {
  if (destination_.ways.empty()) {
    problem_ = "it has no address that can be reached from here";
    return never_ns;
  }
  if (now_ns < next_ns_) return next_ns_;
  if (session_ != nullptr || asked_ != nullptr)
    give_up(Status(Code::Timeout, "no answer"), now_ns);
  else
    attempt(now_ns);
  return next_ns_;
}

void ControlDialer::attempt(std::int64_t now_ns) {
  next_ns_ = now_ns + max_attempt_ns;
  if (destination_.is_up && silent_since_ns_ == 0) silent_since_ns_ = now_ns;
  Trunk* trunk = distrusts_ ? nullptr : trunks_.find(destination_.host, destination_.listener_name);
  if (trunk != nullptr) return ask(*trunk);
  const Status begun = connect();
  failed_here_ = !begun.ok() && begun.code() != Code::RemoteError;
  if (!begun.ok()) take_refusal(begun);
}

Status ControlDialer::connect() {
  bool pending = false;
  GYRE_ASSIGN(FileDescriptor socket, trust::begin_connect(way(), &pending));
  connecting_ = pending;
  GYRE_ASSIGN(session_, trust::SecureSession::start(trunks_.tls(), std::move(socket),
                                                    trust::SessionRole::client, key_));
  // Writable at once, or as soon as it is connected.
  GYRE_ASSIGN(watch_, trunks_.thread().watch(session_->descriptor(), EPOLLIN | EPOLLOUT,
                                             [this](std::uint32_t) { on_socket(); }));
  return {};
}

void ControlDialer::on_socket() {
  if (silent_since_ns_ != 0) silent_since_ns_ = SystemClock::read();
  if (connecting_) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(session_->descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return take_refusal(Status::from_errno("connecting", error));
    connecting_ = false;
  }
  const Status status = session_->advance();
  if (!status.ok() && session_->ended() && !session_->established())
    return take_refusal(
        Status(status.code(),
               fmt::format("{}: is the unique id the right one, and its communicator alive?",
                           status.message())));
  if (!status.ok()) return take_refusal(status);
  if (!session_->established())
    return watch_.change(session_->wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
  watch_.reset();
  Trunk* trunk = trunks_.adopt(std::move(session_), trust::SessionRole::client, distrusts_);
  if (trunk == nullptr)
    return give_up(internal_error("the connection could not be watched"), SystemClock::read());
  ask(*trunk);
}

void ControlDialer::ask(Trunk& trunk) {
  asked_ = std::make_shared<const char>();
  trunk.open_link(
      {key_, [this, asked = std::weak_ptr(asked_)](Result<std::unique_ptr<ControlLink>> link) {
         if (!asked.expired()) answered(std::move(link));
       }});
}

void ControlDialer::answered(Result<std::unique_ptr<ControlLink>> link) {
  silent_since_ns_ = 0;
  if (!link.ok()) return give_up(link.status(), SystemClock::read());
  asked_.reset();
  next_ns_ = never_ns;
  on_link_(std::move(*link));
}

// An answer, if not the wished one.
void ControlDialer::take_refusal(const Status& why) {
  silent_since_ns_ = 0;
  give_up(why, SystemClock::read());
}

void ControlDialer::give_up(const Status& why, std::int64_t now_ns) {
  problem_ = fmt::format("{}: {}", trust::format_address(way()), why.message());
  distrusts_ |= asked_ != nullptr;
  asked_.reset();
  watch_.reset();
  trunks_.thread().retire(std::move(session_));
  ++attempts_;
  // The other ways are tried without a pause between.
  const bool around = attempts_ % destination_.ways.size() == 0;
  next_ns_ = around ? now_ns + pause_ns_ : now_ns;
  if (around) pause_ns_ = std::min(2 * pause_ns_, max_pause_ns);
  trunks_.thread().due_at(next_ns_);
}

}  // namespace gyre::control
