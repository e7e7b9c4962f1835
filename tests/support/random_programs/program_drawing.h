// Draws a program from a seed, step by step. All programs are legal: a buffer is used only when its
// earlier uses are surely over, and every member makes a communicator's calls in the same order.
#pragma once

#include "tests/support/random_programs/program.h"
#include "tests/support/random_programs/program_order.h"
#include "tests/support/random_programs/program_random.h"

#include <set>

namespace gyre::tests {

class ProgramDraw {
 public:
  ProgramDraw(std::uint32_t seed, Temper temper, Housing housing)
      : temper_(temper), housing_(housing), random_(seed) {
    program_.seed = seed;
  }
  Program program();

 private:
  int below(int most) { return random_.below(most); }
  bool one_in(int chances) { return random_.one_in(chances); }
  template <typename List>
  auto& pick(List& list) {
    return random_.pick(list);
  }
  void add(Act act) { program_.steps.push_back({group_, std::move(act)}); }
  std::vector<int>& members(int comm) { return program_.comms[at(comm)].members; }
  int size(int comm) { return static_cast<int>(members(comm).size()); }
  int rank_of(int comm, int member) { return members(comm)[at(member)]; }

  void act();
  void grouped();
  void call(int comm);
  void part(Call& call, int member);
  void message(int comm, int from, int to);
  void messages(int comm);
  void split(int comm);
  void end_of_step();
  void house();
  void drive(int rank);
  void leave();
  void message_of_partial();
  void stream_act();
  void verify();
  void refuse();
  void retire();
  void destroy_pending(bool all);
  void break_one();
  void settle_all(int rank);
  void end();

  // The queue as ProgramOrder counts: a non-blocking communicator's own comes after the streams.
  int true_queue(int comm, int queue) {
    if (queue != 0 || program_.comms[at(comm)].blocking) return queue;
    return program_.streams_each + 1 + comm;
  }
  int draw_queue(int comm, int rank, bool is_message);
  int enter(int comm, int rank, int queue);
  Place draw_place(int rank, int queue, std::size_t bytes, Filling filling, ElementType type,
                   bool writes);
  void touch(int buffer, int queue, std::size_t place, bool writes);
  bool is_usable(int buffer, int queue, bool writes);

  const Temper temper_;
  const Housing housing_;
  Random random_;
  Program program_;
  ProgramOrder order_{16};
  std::vector<int> alive_;                  // communicators that may be called
  std::vector<int> partial_;                // those of which a member has left
  std::set<int> left_;                      // ranks
  std::set<std::pair<int, int>> undriven_;  // (rank, queue): what may not go on by itself
  std::vector<Destroy> pending_;            // still to be destroyed
  std::vector<std::vector<ProgramOrder::Access>> accesses_;  // by buffer
  int group_ = 0, groups_ = 0;
  std::set<int> touched_in_group_;                     // buffers
  std::map<std::pair<int, int>, int> queue_in_group_;  // (comm, rank): its first call's
  // What is known at the end of the step or group: of (rank, queue), of (rank, comm).
  std::vector<std::pair<int, int>> settled_after_, waited_after_;
  std::size_t entered_at_ = 0;  // place of the entry being made
  int next_tag_ = 100;
};

}  // namespace gyre::tests
