// Steps of a program that one rank makes alone.
#include "tests/support/random_programs/program_refusals.h"
#include "tests/support/random_programs/program_thread.h"

namespace gyre::tests {

void RankThread::alone(const StreamWait& act, std::size_t step) {
  if (!mine(act.rank)) return;
  expect(step, act.rank, gyreStreamWait(stream(act.rank, act.queue), stream(act.rank, act.other)),
         nullptr, false);
}

void RankThread::alone(const Synchronize& act, std::size_t step) {
  if (!mine(act.rank)) return;
  expect(step, act.rank, gyreStreamSynchronize(stream(act.rank, act.queue)), nullptr, false);
}

void RankThread::alone(const Settle& act, std::size_t step) {
  const int rank = rank_of(act.comm, act.member);
  if (!mine(rank)) return;
  const gyreComm_t comm = handle(act.comm, act.member);
  expect(step, rank, settled(comm), comm, false);
}

void RankThread::alone(const Verify& act, std::size_t step) {
  if (!mine(program_.buffers[at(act.buffer)].rank)) return;
  const std::string wrong = stage_.buffers[at(act.buffer)]->wrong(stage_.expected[step]);
  if (!wrong.empty()) complain(step, "buffer " + std::to_string(act.buffer) + ": " + wrong);
}

void RankThread::alone(const Destroy& act, std::size_t step) {
  const int rank = rank_of(act.comm, act.member);
  gyreComm_t& comm = handle(act.comm, act.member);
  if (!mine(rank) || comm == nullptr) return;
  if (act.finalize) {
    expect(step, rank, gyreCommFinalize(comm), comm, !comm_at(act.comm).blocking);
    expect(step, rank, settled(comm), comm, false);
  }
  expect(step, rank, gyreCommDestroy(comm), comm, false);
  int size = 0;
  if (gyreCommCount(comm, &size) != gyreInvalidArgument) complain(step, "a handle outlives it");
  comm = nullptr;
}

void RankThread::alone(const Refusal& act, std::size_t step) {
  if (!mine(rank_of(act.comm, act.member))) return;
  const std::string wrong = refused(refusals()[at(act.kind)], handle(act.comm, act.member),
                                    static_cast<int>(comm_at(act.comm).members.size()), act.member);
  if (!wrong.empty()) complain(step, wrong);
}

void RankThread::alone(const Break& act, std::size_t step) {
  const std::vector<int>& members = comm_at(act.comm).members;
  std::vector<Acting> acting;
  for (int member = 0; member < static_cast<int>(members.size()); ++member)
    if (mine(members[at(member)])) acting.push_back({member, &handle(act.comm, member)});
  const std::string wrong =
      broken(act, static_cast<int>(members.size()), std::move(acting), program_.threads_at(step),
             stage_.board.crossing, stage_.break_memory[step]);
  if (!wrong.empty()) complain(step, wrong);
}

void RankThread::alone(const Leave& act, std::size_t) {
  if (!mine(act.rank)) return;
  close_rank(act.rank, !good());
  ranks_.erase(act.rank);
}

}  // namespace gyre::tests
