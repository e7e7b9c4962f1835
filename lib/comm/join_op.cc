#include "lib/comm/join_op.h"

#include "lib/comm/communicator_state.h"
#include "lib/comm/join_info.h"

#include <fmt/core.h>

#include <string_view>
#include <vector>

namespace gyre::comm {

bool JoinOp::advance() {
  using State = control::Membership::State;
  control::Membership& membership = *state_.membership;
  if (membership.state() != State::joining) state_.rank_state.end_wait(WaitLane::collective);
  switch (membership.state()) {
    case State::joining:
      return false;
    case State::joined:
      return settle();
    default:
      finish(state_.fail(membership.failure()));
      return true;
  }
}

bool JoinOp::settle() {
  if (!is_settling_) {
    if (Status differ = compare_notes(); !differ.ok()) {
      finish(state_.fail(std::move(differ)));
      return true;
    }
    show_peers(state_.rank_state, state_.membership->roster());
    is_settling_ = true;
  }
  // A step that threw has failed it.
  if (Status broken = state_.broken(); !broken.ok()) {
    finish(std::move(broken));
    return true;
  }
  auto settled = backend_.settle();
  if (settled.ok() && !*settled) return false;
  finish(settled.ok() ? Status() : state_.fail(std::move(settled).status()));
  return true;
}

Status JoinOp::compare_notes() {
  const control::Roster& roster = state_.membership->roster();
  const auto note_of = [&](int rank) {
    return read_join_info(roster.notes[static_cast<std::size_t>(rank)]);
  };
  const auto kind_of = [](const JoinInfo& note) {
    return note.device.empty() ? "host memory" : "a CUDA device";
  };
  const JoinInfo mine = note_of(state_.rank);
  std::vector<std::string_view> masks;  // of the ranks on this host
  for (int rank = 0; rank < state_.size; ++rank) {
    const JoinInfo note = note_of(rank);
    if (note.settings != mine.settings)
      return Status(Code::InvalidUsage,
                    fmt::format("ranks {} and {} differ in their settings: \"{}\" and \"{}\"",
                                state_.rank, rank, mine.settings, note.settings));
    if (note.device.empty() != mine.device.empty())
      return Status(
          Code::InvalidUsage,
          fmt::format("rank {} works on {} and rank {} on {}: give all ranks a device, or "
                      "none (config.device)",
                      state_.rank, kind_of(mine), rank, kind_of(note)));
    if (state_.identity_of(rank).host == state_.self.host) masks.push_back(note.processors);
  }
  policy_ = gyre::wait_policy(static_cast<int>(masks.size()), count_processors(masks),
                              state_.options.settings.spin_count);
  return {};
}

void JoinOp::expire() {
  finish(state_.fail(Status(Code::Timeout, fmt::format("rank {} of {} could not join in time",
                                                       state_.rank, state_.size))));
}

void JoinOp::break_off(const Status& why) { (void)state_.fail(why); }

bool JoinOp::arm(WaitSet& set) {
  auto& word = state_.membership->changed();
  set.add_futex(&word, word.load(std::memory_order_acquire));
  return is_settling_ || state_.membership->state() == control::Membership::State::joining;
}

std::int64_t JoinOp::limit_ns() const {
  // The control plane keeps the deadline and knows who is missing. What ranks tell each other after
  // that has as long once more. This only bounds the silence of both.
  return (2 * state_.options.settings.init_timeout_s + 15) * ns_per_s;
}

void JoinOp::tell_wait() {
  WaitRecord wait;
  wait.phase = WaitPhase::joining;
  wait.what = BlockedOn::entered;
  wait.peer = backend_.awaited_rank();
  state_.rank_state.tell_wait(WaitLane::collective, wait);
}

}  // namespace gyre::comm
