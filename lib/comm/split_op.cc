#include "lib/comm/split_op.h"

#include "lib/comm/group.h"
#include "lib/control/cause.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace gyre::comm {

SplitOp::SplitOp(Process& process, Communicator& parent, int color, int key, gyreComm_t* target,
                 CommunicatorOptions options)
    : process_(process),
      parent_(parent),
      target_(target),
      options_(std::move(options)),
      wishes_(static_cast<std::size_t>(parent.size())) {
  wishes_[static_cast<std::size_t>(parent.rank())] = {color, key};
  gathering_.function = Function::split;
  gathering_.collective = plan::Collective::all_gather;
  gathering_.count = sizeof(Wish);
  gathering_.output = reinterpret_cast<std::byte*>(wishes_.data());
  gathering_.input =
      reinterpret_cast<const std::byte*>(&wishes_[static_cast<std::size_t>(parent.rank())]);
  gathering_.in_place = true;
  gathering_.on_host = true;
}

// Whoever is to be in the child may wait for this rank, and only the parent can tell all of them:
// it has failed then, for every rank.
bool SplitOp::give_up(const Status& why) {
  // Others may be in the child already, and call on it.
  if (child_ != nullptr && child_->broken().ok())
    (void)child_->fail(
        Status(Code::RemoteError,
               fmt::format("its gyreCommSplit failed, in the numbers of the old communicator: {}",
                           why.message()))
            .blame({child_->rank()}));
  finish(parent_.fail(why));
  return true;
}

bool SplitOp::fail(Status why) { return give_up(std::move(why).while_doing("gyreCommSplit")); }

// An abort of the parent, or a death among its ranks, ends the split at once, wherever it is.
bool SplitOp::advance() {
  if (stage_ != Stage::gathering && parent_.membership().failed())
    return give_up(parent_.membership().failure());
  switch (stage_) {
    case Stage::gathering:
      return advance_gathering();
    case Stage::meeting:
      return advance_meeting();
    case Stage::joining:
      return advance_joining();
  }
  return false;
}

std::vector<int> SplitOp::members() const {
  const int color = wishes_[static_cast<std::size_t>(parent_.rank())].color;
  std::vector<int> members;
  for (int rank = 0; rank < parent_.size() && color != GYRE_SPLIT_NOCOLOR; ++rank)
    if (wishes_[static_cast<std::size_t>(rank)].color == color) members.push_back(rank);
  std::ranges::stable_sort(members, {},
                           [&](int rank) { return wishes_[static_cast<std::size_t>(rank)].key; });
  return members;
}

bool SplitOp::advance_gathering() {
  if (!std::exchange(begun_, true)) {
    message_key_ = parent_.next_split_key();
    parent_.begin(gathering_);
  }
  Resumable& gather = parent_.operation();
  const bool moved = gather.finished() || gather.advance();
  if (!gather.finished()) return moved;
  if (!gather.outcome().ok()) {
    if (!parent_.broken().ok()) return give_up(gather.outcome());
    // Settings rule it out, on all ranks: a refused call breaks nothing.
    finish(gather.outcome());
    return true;
  }
  members_ = members();
  if (members_.empty()) {
    finish({});
    return true;
  }
  stage_ = Stage::meeting;
  if (members_[0] != parent_.rank()) return true;
  if (Status led = lead(); !led.ok()) return fail(std::move(led));
  return true;
}

control::Audience SplitOp::audience() const {
  const control::Roster& roster = parent_.membership().roster();
  const auto process_of = [&](int rank) -> const trust::ProcessIdentity& {
    return roster.processes[roster.process_of_rank[static_cast<std::size_t>(rank)]];
  };
  const bool together = std::ranges::all_of(members_, [&](int rank) {
    return trust::can_meet_locally(process_of(rank), process_of(parent_.rank()));
  });
  return together ? control::Audience::this_host : control::Audience::any_host;
}

// An empty message says that there is no id.
Status SplitOp::lead() {
  GYRE_ASSIGN(control::ControlPlane * plane, process_.plane(options_.settings));
  const auto id = plane->create_unique_id(audience(), options_.settings);
  control::MessageBytes rank_message;
  if (id.ok()) {
    GYRE_ASSIGN(const auto bytes, trust::encode(*id));
    rank_message.assign(bytes.begin(), bytes.end());
  }
  for (std::size_t i = 1; i < members_.size(); ++i)
    GYRE_TRY(parent_.membership().send(members_[i], message_key_, rank_message));
  if (!id.ok()) return id.status();
  return join(*id);
}

bool SplitOp::advance_meeting() {
  const auto rank_message = parent_.membership().receive(members_[0], message_key_);
  if (!rank_message) return false;
  parent_.rank_state().end_wait(WaitLane::collective);
  trust::EncodedId bytes;
  if (rank_message->size() != bytes.size())
    return fail(Status(Code::RemoteError, fmt::format("rank {} could not make an id for the "
                                                      "ranks of this color",
                                                      members_[0]))
                    .blame({members_[0]}));
  std::copy(rank_message->begin(), rank_message->end(), bytes.begin());
  const auto id = trust::decode_unique_id(bytes);
  if (!id.ok()) return fail(id.status());
  if (Status joined = join(*id); !joined.ok()) return fail(std::move(joined));
  return true;
}

Status SplitOp::join(const trust::UniqueId& id) {
  GYRE_ASSIGN(control::ControlPlane * plane, process_.plane(options_.settings));
  const auto place = std::ranges::find(members_, parent_.rank()) - members_.begin();
  GYRE_ASSIGN(child_,
              Communicator::join(*plane, process_.services, id, static_cast<int>(members_.size()),
                                 static_cast<int>(place), options_));
  stage_ = Stage::joining;
  return {};
}

bool SplitOp::advance_joining() {
  Resumable& joining = child_->joining();
  const bool moved = joining.finished() || joining.advance();
  if (!joining.finished()) return moved;
  if (!joining.outcome().ok()) return await_cause(joining.outcome());
  const auto adopted = process_.adopt(std::move(child_));
  if (!adopted.ok()) return fail(adopted.status());
  *target_ = reinterpret_cast<gyreComm_t>(adopted->communicator->handle());
  finish({});
  return true;
}

void SplitOp::expire() {
  if (stage_ == Stage::gathering) {
    parent_.operation().expire();
    if (parent_.operation().finished()) (void)advance_gathering();
  } else if (stage_ == Stage::meeting) {
    (void)fail(Status(Code::Timeout, fmt::format("rank {} sends no id for the ranks of this "
                                                 "color",
                                                 members_[0]))
                   .blame({members_[0]}));
  }  // joining has deadlines of its own, which know who is missing
}

void SplitOp::break_off(const Status& why) {
  if (child_ != nullptr) (void)child_->fail(why);
  (void)parent_.fail(why);
}

bool SplitOp::arm(WaitSet& set) {
  if (stage_ == Stage::gathering) return parent_.operation().arm(set);
  auto& word = parent_.membership().changed();
  set.add_futex(&word, word.load(std::memory_order_acquire));
  if (stage_ == Stage::joining && !child_->joining().finished() && !child_->joining().arm(set))
    return false;
  return !parent_.membership().failed();
}

// Whoever made the child fail may have failed in the parent, whose ranks' numbers the caller knows:
// its word comes within moments if it comes.
bool SplitOp::await_cause(const Status& failure) {
  constexpr std::int64_t patience_ns = 200 * ns_per_ms;
  const std::int64_t now_ns = SystemClock::read();
  if (failed_ns_ == 0) failed_ns_ = now_ns;
  if (now_ns - failed_ns_ < patience_ns) return false;
  std::vector<int> culprits;
  for (const int rank : failure.culprits())
    if (static_cast<std::size_t>(rank) < members_.size())
      culprits.push_back(members_[static_cast<std::size_t>(rank)]);
  return fail(
      Status(
          failure.code(),
          fmt::format("{}: in the new communicator of ranks {} (numbered anew there): {}",
                      control::rank_text(culprits), fmt::join(members_, ", "), failure.message()))
          .blame(culprits));
}

void SplitOp::tell_wait() {
  if (stage_ == Stage::gathering) return parent_.operation().tell_wait();
  if (stage_ == Stage::joining) return child_->joining().tell_wait();
  WaitRecord wait;
  wait.phase = WaitPhase::joining;
  wait.what = BlockedOn::entered;
  wait.peer = members_[0];
  parent_.rank_state().tell_wait(WaitLane::collective, wait);
}

void SplitOp::disarm() {
  if (stage_ == Stage::gathering) parent_.operation().disarm();
}

}  // namespace gyre::comm
