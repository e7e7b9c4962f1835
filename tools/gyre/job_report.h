// How the ranks of a job ended, in numbers and in words.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace gyre::tools {

struct RankEnd {
  pid_t pid = -1;
  bool ended = false;
  int wait_status = 0;       // as wait(2) gives it
  bool after_order = false;  // it ended after the launcher had ordered the job's end
};

inline constexpr int exit_signal_base = 128;  // 128 + signal, as the shell
// 0..255.
int exit_code_of(int wait_status);
// "exit code 3", "signal 9 (Killed)".
std::string describe_end(int wait_status);
// "rank 3", "ranks 0-2, 5".
std::string rank_ranges(const std::vector<int>& ranks);
// Lines for people: who failed first, then what became of each rank; like ends stand together.
std::vector<std::string> job_report(const std::vector<RankEnd>& ends, int first_failed);

}  // namespace gyre::tools
