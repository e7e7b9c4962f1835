// Draws the steps of one rank alone, faults, and the end.
#include "tests/support/random_programs/program_drawing.h"
#include "tests/support/random_programs/program_refusals.h"

#include <algorithm>

namespace gyre::tests {
void ProgramDraw::stream_act() {
  const int rank = below(program_.ranks());
  if (program_.streams_each == 0) return;
  const int queue = 1 + below(program_.streams_each), other = 1 + below(program_.streams_each);
  if (left_.contains(rank)) return;
  if (queue != other && !one_in(3)) {
    order_.wait_for_stream(rank, queue, other);
    return add(StreamWait{rank, queue, other});
  }
  drive(rank);
  order_.synchronize(rank, queue);
  add(Synchronize{rank, queue});
}

void ProgramDraw::verify() {
  for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer) {
    if (!one_in(3) || !is_usable(buffer, ProgramOrder::thread, false)) continue;
    add(Verify{buffer});
  }
}

void ProgramDraw::refuse() {
  const int comm = pick(alive_);
  add(Refusal{comm, below(size(comm)), below(static_cast<int>(refusals().size()))});
}

void ProgramDraw::retire() {
  if (alive_.size() < 2) return;
  const auto which = alive_.begin() + below(static_cast<int>(alive_.size()));
  for (int member = 0; member < size(*which); ++member)
    pending_.push_back({*which, member, one_in(3)});
  alive_.erase(which);
}

void ProgramDraw::destroy_pending(bool all) {
  std::ranges::shuffle(pending_, random_.source());
  while (!pending_.empty() && (all || one_in(2))) {
    const Destroy last = pending_.back();
    pending_.pop_back();
    const int rank = rank_of(last.comm, last.member);
    if (left_.contains(rank)) continue;
    drive(rank);
    order_.wait_for_comm(rank, last.comm);
    add(last);
  }
}

void ProgramDraw::settle_all(int rank) {
  if (left_.contains(rank)) return;
  drive(rank);
  for (int queue = 1; queue <= program_.streams_each; ++queue) {
    order_.synchronize(rank, queue);
    add(Synchronize{rank, queue});
  }
  std::vector<int> comms = alive_;
  comms.insert(comms.end(), partial_.begin(), partial_.end());
  for (const int comm : comms) {
    const int member = program_.comms[at(comm)].place_of(rank);
    if (member == nobody || program_.comms[at(comm)].blocking) continue;
    order_.wait_for_comm(rank, comm);
    add(Settle{comm, member});
  }
}

// All that was called before is over everywhere, so that the fault meets nothing else.
void ProgramDraw::break_one() {
  std::vector<int> shared;
  for (const int comm : alive_)
    if (size(comm) > 1) shared.push_back(comm);
  if (shared.empty()) return;
  const int comm = pick(shared);
  for (const int rank : members(comm)) settle_all(rank);
  for (int rank = 0; rank < program_.ranks(); ++rank) drive(rank);  // all threads meet there
  // Large ones do not fit the slots between two members.
  const bool waits = temper_ == Temper::silent;
  auto fault = static_cast<Fault>(waits ? static_cast<int>(Fault::silence) + below(2)
                                        : below(static_cast<int>(Fault::silence)));
  if (housing_ == Housing::processes && !waits && one_in(6)) fault = Fault::abort_aside;
  add(Break{comm, below(size(comm)), fault, one_in(2) && !waits ? 10UL : 300'000UL});
  std::erase(alive_, comm);
  for (int member = 0; member < size(comm); ++member) pending_.push_back({comm, member, false});
}

void ProgramDraw::end() {
  for (int rank = 0; rank < program_.ranks(); ++rank) settle_all(rank);
  // What was retired may still run, on a queue of its own: its destruction waits for it.
  destroy_pending(true);
  for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer)
    if (is_usable(buffer, ProgramOrder::thread, false)) add(Verify{buffer});
  alive_.insert(alive_.end(), partial_.begin(), partial_.end());
  for (const int comm : alive_)
    for (int member = 0; member < size(comm); ++member)
      pending_.push_back({comm, member, one_in(3)});
  destroy_pending(true);
}

}  // namespace gyre::tests
