// DescriptorLimit: this process may open at most so many more descriptors, until it ends.
#pragma once

#include "lib/base/owned.h"
#include "tests/support/catch.h"

#include <sys/resource.h>
#include <unistd.h>

namespace gyre::test {

class DescriptorLimit {
 public:
  explicit DescriptorLimit(int more) {
    const FileDescriptor next(dup(0));  // the lowest that is free
    REQUIRE(next.has_value());
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(next.get() + more);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace gyre::test
