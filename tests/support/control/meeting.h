// Meeting: control planes and ranks for tests of the control plane, and waiting for their results.
#pragma once

#include "lib/base/clock.h"
#include "lib/control/control.h"
#include "tests/support/catch.h"

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace gyre::test {

using control::ControlPlane;
using control::Membership;
using control::MessageBytes;

inline Settings loopback_settings() {
  Settings settings;
  settings.socket_interface = "lo";
  settings.socket_family = "AF_INET";
  settings.init_timeout_s = 20;
  return settings;
}

inline std::unique_ptr<ControlPlane> start_plane(const Settings& settings = loopback_settings()) {
  auto plane = ControlPlane::start(settings);
  INFO(plane.status().full_text());
  REQUIRE(plane.ok());
  return std::move(plane).value();
}

inline Result<trust::UniqueId> make_id(ControlPlane& plane) {
  return plane.create_unique_id(control::Audience::any_host, loopback_settings());
}

inline std::shared_ptr<Membership> join(ControlPlane& plane, const trust::UniqueId& id, int size,
                                        int rank, const Settings& settings = loopback_settings()) {
  auto member = plane.join(id, size, rank, MessageBytes{static_cast<std::uint8_t>(rank)}, settings);
  INFO(member.status().full_text());
  REQUIRE(member.ok());
  return std::move(member).value();
}

// True once `holds` does; false after `seconds`.
template <typename Condition>
bool soon(Condition&& holds, double seconds = 20) {
  const auto until = SystemClock::read() + static_cast<std::int64_t>(seconds * 1e9);
  while (!holds()) {
    if (SystemClock::read() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline bool settles(const Membership& member, double seconds = 20) {
  return soon([&] { return member.state() != Membership::State::joining; }, seconds);
}

inline bool fails(const Membership& member, double seconds = 20) {
  return soon([&] { return member.failed(); }, seconds);
}

inline std::optional<MessageBytes> next_message(Membership& member, int from, std::uint64_t key) {
  std::optional<MessageBytes> message;
  soon([&] { return (message = member.receive(from, key)).has_value() || member.failed(); });
  return message;
}

// Planes of one process stand for as many processes; rank r lives in plane r % planes.
struct Meeting {
  Meeting(int plane_count, int size, const Settings& settings = loopback_settings()) {
    for (int i = 0; i < plane_count; ++i) planes.push_back(start_plane(settings));
    auto made = make_id(*planes[0]);
    REQUIRE(made.ok());
    id = *made;
    for (int rank = 0; rank < size; ++rank)
      members.push_back(
          join(*planes[static_cast<std::size_t>(rank % plane_count)], id, size, rank, settings));
  }
  void require_joined() {
    for (const auto& member : members) {
      REQUIRE(settles(*member));
      INFO(member->failure().full_text());
      REQUIRE(member->state() == Membership::State::joined);
    }
  }

  std::vector<std::unique_ptr<ControlPlane>> planes;
  trust::UniqueId id;
  std::vector<std::shared_ptr<Membership>> members;
};

}  // namespace gyre::test
