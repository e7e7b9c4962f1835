// The launcher: starts the ranks of a job on this machine, passes their output and the user's
// signals on, and ends them all when one fails. It knows nothing about collectives.
//
//   Job      what to start
//   verdict  the job's exit code: that of the rank that failed first
#pragma once

#include "lib/base/status.h"
#include "tools/gyre/cpu_binding.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gyre::tools {

struct LaunchedJob {
  int ranks = 1;
  BindingChoice binding = BindingChoice::automatic;
  std::string log_directory;             // empty: no log files
  bool prefix = true;                    // "[rank] " before each line
  std::vector<std::string> environment;  // NAME=VALUE, over the launcher's own
  std::int64_t timeout_s = 0;            // 0: none
  std::vector<std::string> command;      // program and arguments
};

inline constexpr int exit_timeout = 124;         // as timeout(1)
inline constexpr int exit_cannot_execute = 126;  // as the shell
inline constexpr int exit_not_found = 127;

// Starts the job and returns its verdict when every rank has ended. A Status says what of the
// launcher's own failed; then no rank is left running.
Result<int> launch(const LaunchedJob& job);

}  // namespace gyre::tools
