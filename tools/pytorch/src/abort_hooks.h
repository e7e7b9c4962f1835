// AbortHooks: functions of the user's that want to hear of a failure before anybody acts on it,
// such as PyTorch's flight recorder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace gyre_torch {

class AbortHooks {
 public:
  using Hook = std::function<void()>;
  void add(std::int64_t id, Hook hook);
  void remove(std::int64_t id);
  // All of them, on the caller's thread; not at all while the interpreter ends. One failure may
  // call them more than once, as c10d allows. They may take Python's lock.
  void call() const;
  // The same on a thread that may wait, and then `after`.
  void call_elsewhere(std::function<void()> after) const;

 private:
  using Hooks = std::map<std::int64_t, std::shared_ptr<const Hook>>;
  Hooks all() const;
  mutable std::mutex mutex_;
  Hooks hooks_;
};

}  // namespace gyre_torch
