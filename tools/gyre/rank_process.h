// Starts one rank as a process. Each rank leads its own process group, so that a signal to the
// group also reaches the processes that the rank started. It has no terminal.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

namespace gyre::tools {

struct RankStart {
  const std::vector<std::string>& command;      // looked up in the PATH of `environment`
  const std::vector<std::string>& environment;  // NAME=VALUE
  const cpu_set_t* processors;                  // nullptr: not bound
  int inherited_descriptor;                     // stays open, under the same number
  sigset_t signal_mask;                         // what the rank starts with
  rlimit descriptor_limit;                      // likewise
};

struct RankProcess {
  pid_t pid = -1;
  FileDescriptor out;  // read ends
  FileDescriptor err;
  int start_error = 0;     // not 0: errno of the call that kept the program from running
  std::string start_call;  // and which call it was; the process ends by itself
};

// Returns when the program runs, or could not be started.
Result<RankProcess> start_rank(const RankStart& start);

}  // namespace gyre::tools
