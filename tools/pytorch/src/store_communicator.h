// StoreCommunicator: a gyreComm_t whose ranks meet through a c10d store, and its errors as
// exceptions.
#pragma once

#include "tools/pytorch/src/abort_hooks.h"
#include "tools/pytorch/src/completion_hook.h"
#include "tools/pytorch/src/forks.h"
#include <gyre/gyre.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

namespace gyre_torch {

// How long a call may take: what `variable` says (in seconds), or else what the caller gave. Gyre
// has that rule of itself; here it is for texts, and for who waits beside it.
std::chrono::milliseconds timeout_in_force(const char* variable, std::chrono::milliseconds given);

// What is in force for each operation of a group; set_timeout changes it.
using GroupTimeout = std::atomic<std::chrono::milliseconds>;

struct GroupMembership {
  int rank = 0;
  int size = 1;
  std::string group;  // its name, for texts
  std::shared_ptr<GroupTimeout> timeout;
  std::shared_ptr<AbortHooks> hooks = std::make_shared<AbortHooks>();
  std::shared_ptr<CompletionHook> completions = std::make_shared<CompletionHook>();
};

// What happened, as c10d's exception for it: DistBackendError, or ValueError where the caller's
// arguments are wrong. `doing` names the operation.
[[noreturn]] void throw_error(const GroupMembership& in, gyreResult_t result,
                              const std::string& doing, const std::string& story);

class StoreCommunicator {
 public:
  // Collective: two of the same ranks; returns when all have come. `key` names them in the store.
  static std::pair<std::unique_ptr<StoreCommunicator>, std::unique_ptr<StoreCommunicator>> join_two(
      const c10::intrusive_ptr<c10d::Store>& store, const std::string& key,
      const GroupMembership& membership, int device);
  // Collective: another one of the same ranks.
  std::unique_ptr<StoreCommunicator> twin() const;
  ~StoreCommunicator();
  StoreCommunicator(const StoreCommunicator&) = delete;
  StoreCommunicator& operator=(const StoreCommunicator&) = delete;

  gyreComm_t get() const { return comm_; }
  // How often ranks have met by its key in the store, this time included: the same on all ranks.
  std::int64_t meeting() const { return meeting_; }
  // Any thread. One of a GPU keeps its own, with a warning.
  void set_timeout(std::chrono::milliseconds timeout);
  // Any thread, while another is inside a call, and after it was destroyed, too.
  void abort();
  const GroupMembership& membership() const { return membership_; }
  // A forked child may do nothing with its parent's.
  bool is_of_this_process() const { return birth_.is_this(); }
  // Throws unless it is gyreSuccess: what a call of this thread has just returned. Then it calls
  // the group's hooks first, unless the arguments are wrong.
  void check(gyreResult_t result, const std::string& doing) const {
    if (result != gyreSuccess) fail_here(result, doing);
  }
  // Of an operation that ended elsewhere, with the communicator's last error. The hooks are the
  // caller's business.
  [[noreturn]] void fail(gyreResult_t result, const std::string& doing) const {
    fail(result, doing, gyreGetLastError(comm_));
  }

 private:
  [[noreturn]] void fail_here(gyreResult_t result, const std::string& doing) const;
  StoreCommunicator(GroupMembership membership, gyreConfig_t config)
      : membership_(std::move(membership)), config_(config) {}
  [[noreturn]] void fail(gyreResult_t result, const std::string& doing,
                         const std::string& story) const;
  static std::unique_ptr<StoreCommunicator> join(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::string& key,
                                                 const GroupMembership& membership, int device);
  const BirthProcess birth_;
  const GroupMembership membership_;
  gyreConfig_t config_;
  gyreComm_t comm_ = nullptr;
  std::int64_t meeting_ = 0;
  std::atomic<bool> aborted_{false};
};

}  // namespace gyre_torch
