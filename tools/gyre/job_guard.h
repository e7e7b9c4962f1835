// JobGuard: a small process that lives a moment longer than the launcher. If the launcher is killed
// (SIGKILL), the kernel kills the ranks, and the guard kills the processes that the ranks had
// started.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <sys/types.h>

namespace gyre::tools {

class JobGuard {
 public:
  static Result<JobGuard> start();
  JobGuard(JobGuard&&) noexcept = default;
  JobGuard& operator=(JobGuard&&) = delete;
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;
  // Lets the guard go: the launcher has ended every group itself.
  ~JobGuard();

  // Watches the group from here on.
  void watch(pid_t group) const;

 private:
  JobGuard(FileDescriptor line, pid_t pid) : line_(std::move(line)), pid_(pid) {}

  FileDescriptor line_;  // carries group ids; its end is the launcher's
  pid_t pid_;
};

}  // namespace gyre::tools
