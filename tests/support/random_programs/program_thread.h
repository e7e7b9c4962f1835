// RankThread: a thread of a program's process, which acts for some ranks and walks through the
// steps together with all the others.
#pragma once

#include "tests/support/random_programs/program_run.h"

#include <array>
#include <functional>
#include <set>

namespace gyre::tests {

// What the threads of one process share while a program is carried out.
struct Stage {
  Stage(const Program& of, ProgramBoard& on, int process);

  const Program& program;
  ProgramBoard& board;
  const Memories expected;
  std::vector<std::unique_ptr<LiveBuffer>> buffers;  // of this process's ranks
  std::vector<std::vector<gyreComm_t>> handles;      // by communicator and member; the rank's own
  std::vector<std::array<int, 2>> received;          // source and tag, by step
  std::vector<std::vector<std::vector<float>>> break_memory;
};

// One call of one rank, and what follows once it has been carried out.
struct Invocation {
  int rank, comm, member;
  std::size_t step;
  std::function<gyreResult_t()> call;
  std::function<void()> after = {};
};

class RankThread {
 public:
  RankThread(Stage& stage, int thread);
  void run();

 private:
  bool good() const { return stage_.board.none_yet(); }
  bool mine(int rank) const { return ranks_.contains(rank); }
  const ProgramCommunicator& comm_at(int comm) const { return program_.comms[at(comm)]; }
  gyreComm_t& handle(int comm, int member) { return stage_.handles[at(comm)][at(member)]; }
  int rank_of(int comm, int member) const { return comm_at(comm).members[at(member)]; }
  gyreStream_t stream(int rank, int queue) {
    return queue == 0 ? nullptr : streams_[{rank, queue}];
  }
  std::byte* pointer(const Place& place) {
    return place.buffer == nobody ? nullptr
                                  : stage_.buffers[at(place.buffer)]->begin() + place.offset;
  }
  void complain(std::size_t step, const std::string& text) {
    stage_.board.complain("step " + std::to_string(step) + ": " + text);
  }
  void expect(std::size_t step, int rank, gyreResult_t result, gyreComm_t comm, bool may_go_on) {
    if (result == gyreSuccess || (may_go_on && result == gyreInProgress)) return;
    complain(step, "rank " + std::to_string(rank) + " gets " + std::to_string(result) + ": " +
                       gyreGetLastError(comm));
  }

  void open();
  void close();
  void destroy_left(int rank, bool failed);
  void close_rank(int rank, bool failed);
  void carry_out(std::size_t begin, std::size_t end);
  void collect(const Call& call, std::size_t step, std::vector<Invocation>& all);
  void collect(const Message& message, std::size_t step, std::vector<Invocation>& all);
  void collect(const Split& split, std::size_t step, std::vector<Invocation>& all);
  gyreResult_t collective(const Call& call, const Part& part, gyreRedOp_t op, int member);
  gyreResult_t uneven(const Call& call, const Part& part, gyreRedOp_t op, gyreComm_t comm,
                      gyreStream_t stream);
  void check_child(std::size_t step, int comm, int member);
  void alone(const StreamWait& act, std::size_t step);
  void alone(const Synchronize& act, std::size_t step);
  void alone(const Settle& act, std::size_t step);
  void alone(const Verify& act, std::size_t step);
  void alone(const Destroy& act, std::size_t step);
  void alone(const Refusal& act, std::size_t step);
  void alone(const Break& act, std::size_t step);
  void alone(const Leave& act, std::size_t step);
  template <typename Other>
  void alone(const Other&, std::size_t) {}

  Stage& stage_;
  const Program& program_;
  std::set<int> ranks_;
  std::map<std::pair<int, int>, gyreStream_t> streams_;  // (rank, queue)
};

}  // namespace gyre::tests
