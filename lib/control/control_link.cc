#include "lib/control/control_link.h"

#include "lib/base/clock.h"
#include "lib/control/control_thread.h"

#include <algorithm>
#include <utility>

namespace gyre::control {
namespace {

// A sign of life a second, or three in the limit if that is shorter.
std::int64_t ping_period_ns(std::int64_t limit_ns) { return std::min(ns_per_s, limit_ns / 3); }

}  // namespace

void ControlLink::belong_to(ControlLinkOwner& owner, Role first_role) {
  owner_ = &owner;
  role = first_role;
}

void ControlLink::send(Kind kind, std::span<const std::uint8_t> body) {
  if (trunk_ != nullptr) trunk_->send(number_, kind, body);
}

bool ControlLink::flushed() const { return trunk_ == nullptr || trunk_->flushed(); }

void ControlLink::close() {
  if (trunk_ != nullptr) std::exchange(trunk_, nullptr)->forget(number_);
}

void ControlLink::hear(const trust::Frame& frame) {
  if (owner_ != nullptr) owner_->on_frame(*this, frame);
}

void ControlLink::end(const Status& how, bool closed) {
  cut();
  if (owner_ != nullptr) owner_->on_end(*this, how, closed);
}

void ControlLink::set_liveness(std::int64_t limit_ns) {
  limit_ns_ = limit_ns;
  if (trunk_ != nullptr) trunk_->due_at(0);
}

std::int64_t ControlLink::tick(std::int64_t now_ns) {
  if (trunk_ == nullptr || limit_ns_ == 0) return never_ns;
  const std::int64_t silent_at = trunk_->heard_ns() + limit_ns_ + trunk_->grace_ns();
  if (now_ns >= silent_at || trunk_->loses_what_is_said(now_ns, limit_ns_)) {
    const std::int64_t limit_ns = std::exchange(limit_ns_, 0);
    owner_->on_silence(*this, limit_ns, trunk_->silence_text(limit_ns));
    return never_ns;
  }
  const std::int64_t ping_at = trunk_->ping(now_ns, ping_period_ns(limit_ns_));
  return std::min({silent_at, ping_at, trunk_->next_look_ns(now_ns)});
}

}  // namespace gyre::control
