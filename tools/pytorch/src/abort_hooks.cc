#include "tools/pytorch/src/abort_hooks.h"

#include "tools/pytorch/src/completion_threads.h"

#include <c10/util/Exception.h>
#include <utility>

namespace gyre_torch {
namespace {

void call_all(const std::map<std::int64_t, std::shared_ptr<const AbortHooks::Hook>>& hooks) {
  const CompletionThreads::UserCodeScope telling;
  if (!telling.allowed()) return;
  for (const auto& [id, hook] : hooks) {
    try {
      (*hook)();
    } catch (const std::exception& error) {
      TORCH_WARN("gyre: abort hook ", id, " failed: ", error.what());
    }
  }
}

}  // namespace

// A hook of Python's that ends takes Python's lock: not under ours.
void AbortHooks::add(std::int64_t id, Hook hook) {
  auto kept = std::make_shared<const Hook>(std::move(hook));
  const std::lock_guard lock(mutex_);
  hooks_[id].swap(kept);
}

void AbortHooks::remove(std::int64_t id) {
  std::shared_ptr<const Hook> last;  // it ends without our lock
  const std::lock_guard lock(mutex_);
  const auto found = hooks_.find(id);
  if (found == hooks_.end()) return;
  last = std::move(found->second);
  hooks_.erase(found);
}

AbortHooks::Hooks AbortHooks::all() const {
  const std::lock_guard lock(mutex_);
  return hooks_;
}

void AbortHooks::call() const {
  if (const Hooks hooks = all(); !hooks.empty()) call_all(hooks);
}

void AbortHooks::call_elsewhere(std::function<void()> after) const {
  Hooks hooks = all();
  if (hooks.empty()) return after();
  CompletionThreads::shared().push([hooks = std::move(hooks), after = std::move(after)] {
    call_all(hooks);
    after();
  });
}

}  // namespace gyre_torch
