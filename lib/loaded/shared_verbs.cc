#include "lib/loaded/shared_verbs.h"

#include "lib/loaded/verbs_device.h"

namespace gyre::loaded {

Result<const Verbs*> SharedVerbs::table() {
  const std::lock_guard lock(mutex_);
  if (table_ != nullptr) return table_;
  GYRE_ASSIGN(loaded_, load_verbs());
  table_ = loaded_.get();
  return table_;
}

Result<std::shared_ptr<VerbsDevice>> SharedVerbs::open(ibv_device* device) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<VerbsDevice>& known = devices_[table_->device_name(device)];
  if (std::shared_ptr<VerbsDevice> shared = known.lock(); shared != nullptr) {
    shared->take_events();
    if (!shared->has_failed()) return shared;
  }
  GYRE_ASSIGN(std::shared_ptr<VerbsDevice> opened, VerbsDevice::open(*table_, device));
  known = opened;
  return opened;
}

void SharedVerbs::use(const Verbs* table) {
  const std::lock_guard lock(mutex_);
  table_ = table;
  devices_.clear();
}

}  // namespace gyre::loaded
