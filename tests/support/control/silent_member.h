// SilentMember: rank 0's membership in a job that has come together, to which nothing comes and
// from which nothing goes.
#pragma once

#include "lib/control/membership.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace gyre::tests {

class SilentMember : public control::Membership {
 public:
  explicit SilentMember(control::Roster roster) : roster_(std::move(roster)) {}
  State state() const override { return State::joined; }
  Status failure() const override { return {}; }
  std::atomic<std::uint32_t>& changed() override { return changed_; }
  const control::Roster& roster() const override { return roster_; }
  const trust::ProcessIdentity& self() const override { return roster_.processes.front(); }
  Status send(int, std::uint64_t, control::MessageBytes) override { return {}; }
  std::optional<control::MessageBytes> receive(int, std::uint64_t) override { return {}; }
  void listen(std::uint64_t, Hear) override {}
  bool has_left(int) const override { return false; }
  void abort(Status) override {}
  void leave() override {}

 private:
  const control::Roster roster_;
  std::atomic<std::uint32_t> changed_{0};
};

}  // namespace gyre::tests
