// SharedVerbs: libibverbs as all communicators of a process share it: its functions, which are
// loaded once, and its opened devices. The first that asks for a device opens it, and it is closed
// once nobody uses it. A device that has failed is shared with nobody new. Builds without
// libibverbs's header have this class as well, and nobody who calls its functions.
#pragma once

#include "lib/base/status.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

struct ibv_device;

namespace gyre::loaded {

struct Verbs;
class VerbsDevice;

// Any thread.
class SharedVerbs {
 public:
  // Null: this machine's library.
  explicit SharedVerbs(const Verbs* table = nullptr) : table_(table) {}

  // Loads the library at the first call. The error says why there is no RDMA.
  Result<const Verbs*> table();
  // A device of that table's list.
  Result<std::shared_ptr<VerbsDevice>> open(ibv_device* device);
  // Another library: a test's. Null: this machine's again. No device is in use.
  void use(const Verbs* table);

 private:
  std::mutex mutex_;  // of what follows
  const Verbs* table_;
  std::shared_ptr<const Verbs> loaded_;                                     // this machine's
  std::map<std::string, std::weak_ptr<VerbsDevice>, std::less<>> devices_;  // by name
};

}  // namespace gyre::loaded
