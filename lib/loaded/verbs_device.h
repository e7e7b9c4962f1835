// VerbsDevice: an opened device of libibverbs, for all communicators of a process: see SharedVerbs.
#pragma once

#include "lib/loaded/verbs.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace gyre::loaded {

// Any thread.
class VerbsDevice {
 public:
  // The table outlives it.
  static Result<std::shared_ptr<VerbsDevice>> open(const Verbs& table, ibv_device* device);
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const Verbs& table() const { return *context_.get().table; }
  ibv_context* context() const { return context_.get().object; }
  const std::string& name() const { return name_; }
  // Takes the device's asynchronous events, logs them, and sets the flag to which the user pointer
  // of an overflowed completion queue leads, a std::atomic<bool>.
  void take_events();
  // For good, as far as events were taken.
  bool has_failed() const { return has_failed_.load(std::memory_order_relaxed); }

 private:
  VerbsDevice(VerbsContext context, std::string name)
      : context_(std::move(context)), name_(std::move(name)) {}

  const VerbsContext context_;
  const std::string name_;
  std::mutex mutex_;  // of the events
  std::atomic<bool> has_failed_{false};
};

}  // namespace gyre::loaded
