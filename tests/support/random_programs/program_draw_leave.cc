// Draws steps that only programs of processes have: streams that callers drive, and ranks that
// leave before the others.
#include "tests/support/random_programs/program_drawing.h"

#include <algorithm>

namespace gyre::tests {

// Ranks get threads, and threads processes, anew.
void ProgramDraw::house() {
  if (program_.by_init_all) program_.settings.erase("GYRE_TIMEOUT");
  program_.by_init_all = false;
  program_.settings["GYRE_INIT_TIMEOUT"] = "20";
  const int ranks = program_.ranks();
  const int processes = one_in(3) ? 1 + below(ranks) : ranks;
  const int threads = processes + below(ranks - processes + 1);
  for (int rank = 0; rank < ranks; ++rank)
    program_.thread_of_rank[at(rank)] = rank < threads ? rank : below(threads);
  std::ranges::shuffle(program_.thread_of_rank, random_.source());
  for (int thread = 0; thread < threads; ++thread)
    program_.process_of_thread.push_back(thread < processes ? thread : below(processes));
  for (int rank = 0; rank < ranks; ++rank) {
    program_.by_caller.emplace_back();
    for (int queue = 0; queue < program_.streams_each; ++queue)
      program_.by_caller.back().push_back(one_in(3));
  }
}

// Before a rank waits for anything but its callers' streams: what is queued on those of its thread
// would stand still meanwhile, and somebody may wait for it.
void ProgramDraw::drive(int rank) {
  if (program_.by_caller.empty()) return;
  const int thread = program_.thread_of_rank[at(rank)];
  for (const auto& [other, queue] : std::set(undriven_)) {
    if (program_.thread_of_rank[at(other)] != thread || left_.contains(other)) continue;
    undriven_.erase({other, queue});
    if (queue < 1 || queue > program_.streams_each || !program_.is_by_caller(other, queue))
      continue;
    order_.synchronize(other, queue);
    add(Synchronize{other, queue});
  }
}

// A rank settles what it has, destroys its communicators and goes; the lowest one often.
void ProgramDraw::leave() {
  std::vector<int> there;
  for (int rank = 0; rank < program_.ranks(); ++rank)
    if (!left_.contains(rank)) there.push_back(rank);
  if (there.size() < 2) return;
  const int rank = one_in(2) ? there.front() : pick(there);
  settle_all(rank);
  for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer)
    if (program_.buffers[at(buffer)].rank == rank && is_usable(buffer, ProgramOrder::thread, false))
      add(Verify{buffer});
  std::vector<int> comms = alive_;
  comms.insert(comms.end(), partial_.begin(), partial_.end());
  for (const int comm : comms) {
    const int member = program_.comms[at(comm)].place_of(rank);
    if (member == nobody) continue;
    pending_.push_back({comm, member, one_in(3)});
    if (std::erase(alive_, comm) > 0) partial_.push_back(comm);
  }
  for (const Destroy& last : std::vector<Destroy>(pending_)) {
    if (rank_of(last.comm, last.member) != rank) continue;
    order_.wait_for_comm(rank, last.comm);
    add(last);
  }
  std::erase_if(pending_,
                [&](const Destroy& one) { return rank_of(one.comm, one.member) == rank; });
  left_.insert(rank);
  add(Leave{rank});
}

// Those who stay can still talk to each other.
void ProgramDraw::message_of_partial() {
  const int comm = pick(partial_);
  std::vector<int> there;
  for (int member = 0; member < size(comm); ++member)
    if (!left_.contains(rank_of(comm, member))) there.push_back(member);
  if (!there.empty()) message(comm, pick(there), pick(there));
}

}  // namespace gyre::tests
