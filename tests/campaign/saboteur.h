// Saboteur: injects the faults of one process. Each fault has a thread that was started before, so
// that it needs no resources when its time comes.
#pragma once

#include "tests/campaign/errand.h"
#include "tests/campaign/rank_life.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace gyre::campaign {

class Saboteur {
 public:
  Saboteur(const Errands& errands, int process);
  Saboteur(const Saboteur&) = delete;
  Saboteur& operator=(const Saboteur&) = delete;
  ~Saboteur();

  // Of the ranks of this process; before they run.
  void adopt(RankLife& life) { lives_.push_back(&life); }
  // A rank has begun an errand.
  void notice(int rank, int errand);

 private:
  void wait_for(std::size_t index);
  RankLife& life_of(int rank);

  const std::vector<Sabotage> mine_;
  std::vector<RankLife*> lives_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> due_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gyre::campaign
