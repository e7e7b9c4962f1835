// SharedUcp: UCX as all communicators of a process share it: its functions, which are loaded once,
// and its context, which knows the devices. The first that asks for the context makes it, and it
// goes with the last that uses it.
#pragma once

#include "lib/loaded/ucp.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace gyre::loaded {

// Any thread may use it, by workers of its own.
class UcpSharedContext {
 public:
  // Fails if UCX finds no device. UCX asks a silent peer often enough that it notices within
  // `liveness_ns`, unless the user has said how often (UCX_KEEPALIVE_INTERVAL).
  static Result<std::shared_ptr<UcpSharedContext>> make(const Ucp& table, std::int64_t liveness_ns);
  ~UcpSharedContext();
  UcpSharedContext(const UcpSharedContext&) = delete;
  UcpSharedContext& operator=(const UcpSharedContext&) = delete;

  const Ucp& table() const { return table_; }
  UcpContext* get() const { return context_.get().object; }
  // Of all workers together, where UCX was built without threads; else null.
  std::mutex* workers_mutex() { return is_threaded_ ? nullptr : &mutex_; }
  // False in a process that was forked since: UCX's threads and connections are the parent's.
  bool is_of_this_process() const;

 private:
  UcpSharedContext(const Ucp& table, UcpContextHandle context, bool is_threaded);

  const Ucp& table_;
  UcpContextHandle context_;
  const bool is_threaded_;
  const int process_;
  std::mutex mutex_;
};

// Any thread.
class SharedUcp {
 public:
  // Null: this machine's library.
  explicit SharedUcp(const Ucp* table = nullptr) : table_(table) {}

  // Loads the library at the first call. The error says why there is no UCX.
  Result<const Ucp*> table();
  Result<std::shared_ptr<UcpSharedContext>> context(std::int64_t liveness_ns);
  // Another library: a test's. Null: this machine's again. No context is in use.
  void use(const Ucp* table);

 private:
  std::mutex mutex_;  // of what follows
  const Ucp* table_;
  std::shared_ptr<const Ucp> loaded_;  // this machine's
  std::weak_ptr<UcpSharedContext> context_;
};

}  // namespace gyre::loaded
