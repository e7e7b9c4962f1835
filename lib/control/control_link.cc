#include "lib/control/control_link.h"

#include "lib/base/clock.h"
#include "lib/control/control_thread.h"

#include <algorithm>
#include <utility>

namespace gyre::control {
namespace {

// A rank that leaves says few words.
constexpr std::size_t max_waiting = 1024;

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
  waiting_.clear();
  end_.reset();
  if (trunk_ != nullptr) std::exchange(trunk_, nullptr)->forget(number_);
}

void ControlLink::hear(trust::Frame& frame) {
  if (!held_) {
    if (owner_ != nullptr) owner_->on_frame(*this, frame);
    return;
  }
  if (waiting_.size() < max_waiting) return waiting_.push_back(std::move(frame));
  std::exchange(trunk_, nullptr)->forget(number_);
  end_ = LinkEnd{Status(Code::RemoteError, "it said too much before it was let in"), false};
}

void ControlLink::end(const Status& how, bool closed) {
  cut();
  if (held_)
    end_ = LinkEnd{how, closed};
  else if (owner_ != nullptr)
    owner_->on_end(*this, how, closed);
}

// The owner may close it at any of these.
void ControlLink::release() {
  held_ = false;
  while (!waiting_.empty()) {
    const trust::Frame frame = std::move(waiting_.front());
    waiting_.pop_front();
    owner_->on_frame(*this, frame);
  }
  if (const auto end = std::exchange(end_, std::nullopt))
    owner_->on_end(*this, end->how, end->closed);
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
