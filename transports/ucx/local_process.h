// LocalProcess: whether a peer's process on this host still runs. UCX does not watch peers over its
// shared memory.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <cstdint>
#include <string>
#include <utility>

namespace gyre::transport {

class LocalProcess {
 public:
  // By the name of its listener; none: nobody can look.
  explicit LocalProcess(std::string listener) : listener_(std::move(listener)) {}
  // An error once it has ended, and the control plane has had the time to say why: a process that
  // was told of a failure ends, and is not to blame. Costs system calls.
  Status look();

 private:
  Status ask();
  Status find();

  const std::string listener_;
  bool is_found_ = false;
  std::int64_t ended_since_ns_ = 0;  // 0: it was not seen to have ended
  FileDescriptor process_;           // none: the kernel does not tell
};

}  // namespace gyre::transport
