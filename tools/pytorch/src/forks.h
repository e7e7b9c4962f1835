// Tells what a forked child has from its parent. There, locks may be held for ever, and there are
// no threads but one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace gyre_torch {

// Another number in a child than in its parent. Takes no lock once it has been called.
std::uint32_t fork_count();

// Whether the object that has it was made by this process, not by one that this was forked from.
class BirthProcess {
 public:
  bool is_this() const { return count_ == fork_count(); }

 private:
  std::uint32_t count_ = fork_count();
};

// This process's T, for good. A child makes its own, and leaves its parent's as it is.
template <typename T>
T& of_this_process() {
  struct Made {
    BirthProcess birth;
    T one;
  };
  static std::atomic<Made*> current{nullptr};
  Made* found = current.load(std::memory_order_acquire);  // pairs with the release of who made it
  if (found == nullptr || !found->birth.is_this()) {
    auto made = std::make_unique<Made>();
    if (current.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel,
                                        std::memory_order_acquire))
      found = made.release();
  }
  return found->one;
}

}  // namespace gyre_torch
