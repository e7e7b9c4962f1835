// ProcessJob: real processes that join one job and report their state on a shared board, so that a
// test can kill them. The test process has one thread when it forks.
#pragma once

#include "lib/control/control.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace gyre::test {

struct ProcessJobPlan {
  int processes = 2;
  int ranks_each = 1;
  bool tcp = false;              // to the root, although it is on this host
  bool die_when_failed = false;  // _exit at once, without leave or farewell
  int liveness_s = 10;
  int init_s = 30;
  std::vector<int> absent = {};  // processes that end before they join
};

// What one rank says.
struct ProcessJobReport {
  std::atomic<int> state{0};  // Membership::State + 1 once it is settled
  std::atomic<std::int64_t> failed_ns{0};
  int code = 0;
  char text[600] = {};
  int culprit_count = 0;
  int culprits[64] = {};
};

class ProcessJob {
 public:
  static constexpr int max_ranks = 96;

  explicit ProcessJob(const ProcessJobPlan& plan);
  ProcessJob(const ProcessJob&) = delete;
  ProcessJob& operator=(const ProcessJob&) = delete;
  ~ProcessJob();  // ends whoever is still there

  pid_t pid(int process) const { return pids_[static_cast<std::size_t>(process)]; }
  int ranks() const { return plan_.processes * plan_.ranks_each; }
  // Rank r lives in process r / ranks_each.
  int process_of(int rank) const { return rank / plan_.ranks_each; }
  std::vector<int> ranks_of(int process) const;
  const ProcessJobReport& report(int rank) const;

  bool all_joined(double seconds = 30) const;
  // All ranks but those of `except` have failed.
  bool all_failed_but(const std::vector<int>& except, double seconds = 30) const;
  void send_signal(int process, int number) const;
  // Asks a process to fork a child that keeps all its descriptors; waits for it.
  void fork_holder(int process);
  // Asks a process to leave and end at once, without a farewell; waits for that.
  void depart(int process);
  // Asks everybody to leave and end; true if all ended in peace.
  bool finish();

 private:
  struct Board;
  void run(int process);  // never returns

  const ProcessJobPlan plan_;
  Board* board_ = nullptr;
  std::vector<pid_t> pids_;
};

}  // namespace gyre::test
