// LocalProcess: whether a peer's process on this host still runs. UCX does not watch peers over its
// shared memory.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <string>
#include <utility>

namespace gyre::transport {

class LocalProcess {
 public:
  // By the name of its listener; none: nobody can look.
  explicit LocalProcess(std::string listener) : listener_(std::move(listener)) {}
  // An error once it has ended. Costs system calls.
  Status look();

 private:
  Status find();

  const std::string listener_;
  bool is_found_ = false;
  FileDescriptor process_;  // none: the kernel does not tell
};

}  // namespace gyre::transport
