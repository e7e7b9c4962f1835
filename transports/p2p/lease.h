// Lease: a lender's memory file on which borrowers hold locks while they use the lent memory. So
// the lender knows when nobody uses it any more. That includes borrowers that died, because the
// kernel releases the locks of a process that ends. No messages are needed, and none can get lost.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <cstdint>

namespace gyre::p2p {

// How a borrower finds it, beside the lender's process id.
struct LeaseName {
  std::uint32_t descriptor = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const LeaseName&, const LeaseName&) = default;
};

class Lease {
 public:
  static Result<Lease> make();
  LeaseName name() const { return name_; }
  // True once no borrower is left; none can come after that.
  bool end();

 private:
  FileDescriptor file_;
  LeaseName name_;
  bool ended_ = false;
};

// A borrower's; let go of when it is destroyed.
class LeaseBorrower {
 public:
  // Of a lender on this host; an error if it has ended the lease, or there is none.
  static Result<LeaseBorrower> begin(std::uint32_t pid, const LeaseName& name);
  LeaseBorrower() = default;
  LeaseBorrower(LeaseBorrower&&) = default;
  LeaseBorrower& operator=(LeaseBorrower&&) = delete;
  ~LeaseBorrower();

 private:
  FileDescriptor file_;
};

}  // namespace gyre::p2p
