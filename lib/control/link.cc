#include "lib/control/link.h"

#include "lib/base/clock.h"
#include "lib/control/control_thread.h"

#include <algorithm>
#include <utility>

namespace gyre::control {
namespace {

// A sign of life a second, or three in the limit if that is shorter.
std::int64_t ping_period_ns(std::int64_t limit_ns) { return std::min(ns_per_s, limit_ns / 3); }

}  // namespace

void Link::belong_to(LinkOwner& owner, Role first_role) {
  owner_ = &owner;
  role = first_role;
}

void Link::send(Kind kind, std::span<const std::uint8_t> body) {
  if (trunk_ != nullptr) trunk_->send(number_, kind, body);
}

bool Link::flushed() const { return trunk_ == nullptr || trunk_->flushed(); }

void Link::close() {
  if (trunk_ != nullptr) std::exchange(trunk_, nullptr)->forget(number_);
}

void Link::hear(const trust::Frame& frame) {
  if (owner_ != nullptr) owner_->on_frame(*this, frame);
}

void Link::end(const Status& how, bool closed) {
  cut();
  if (owner_ != nullptr) owner_->on_end(*this, how, closed);
}

void Link::set_liveness(std::int64_t limit_ns) {
  limit_ns_ = limit_ns;
  if (trunk_ != nullptr) trunk_->due_at(0);
}

std::int64_t Link::tick(std::int64_t now_ns) {
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
