// CudaRest: finds moments in which this process may make driver calls that may wait for kernels. To
// allocate, free, map or share memory, a driver may wait until the kernels of a device and of its
// peers have ended. It blocks launches meanwhile, and a kernel of ours may wait for just such a
// launch. So frees wait on a thread of their own for a moment in which no kernel of ours runs. A
// caller that needs memory at once waits for such a moment, as long as that makes sense. No launch
// is made while a Stillness is held.
#pragma once

#include "lib/base/service_thread.h"
#include "lib/loaded/cuda.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace gyre::loaded {

// Any thread.
class CudaRest {
 public:
  // Whoever launches.
  class Kernels {
   public:
    virtual ~Kernels() = default;
    // That have been launched and not ended. Replays of graphs are seen once their kernel has
    // begun: one that still waits in its stream is not.
    virtual bool are_left() const = 0;
    virtual bool may_come() const = 0;  // by graphs, at any time
  };

  CudaRest() = default;
  ~CudaRest();
  CudaRest(const CudaRest&) = delete;
  CudaRest& operator=(const CudaRest&) = delete;

  void add(const Kernels& kernels);
  void remove(const Kernels& kernels);
  // To be held over a launch, or while `may_come` turns true, and over no other call.
  using Launching = std::shared_lock<std::shared_mutex>;
  Launching launching() { return Launching(gate_); }

  // Of whoever waits, at each look: launches that have not been made are put off for a moment, so
  // that those on their way come to an end. For no longer, and not again soon: one of these may
  // wait for one of those.
  void ask_for_rest();
  bool puts_off_launches() const;

  // While it lives, nobody launches, if `is_held`. Scopes of a thread lie in one another.
  class Stillness {
   public:
    explicit Stillness(std::unique_lock<std::shared_mutex> gate);
    ~Stillness();
    Stillness(const Stillness&) = delete;
    Stillness& operator=(const Stillness&) = delete;
    bool is_held() const { return counts_; }

   private:
    const std::unique_lock<std::shared_mutex> gate_;
    const bool counts_;
  };
  // Held if nothing is on its way now.
  Stillness try_rest() { return Stillness(try_gate(false)); }
  // Not held if something still is after `patience_ns`: it may wait for the caller. Who comes next
  // is not kept then, before there was a rest.
  static constexpr std::int64_t patience_ns = 10'000'000'000;
  Stillness await_rest();
  void note_vain_wait();  // somebody has waited so long

  // Does it on a thread of its own, when nothing is on its way and no graph can bring anything.
  void later(std::function<void()> act);
  // Waits until that is done, and no longer than nothing is on its way; at most 2 s. So what was
  // let go of is free when a call returns, where nothing runs.
  void settle();
  // Does it on this thread: no kernel of ours is left.
  void finish();
  // The process ends, and frees nothing.
  void end(std::int64_t max_ns);

 private:
  bool rests(bool for_good) const;
  std::unique_lock<std::shared_mutex> try_gate(bool for_good);
  std::unique_lock<std::shared_mutex> await_gate();
  bool do_some();
  void serve();

  std::atomic<std::int64_t> put_off_until_ns_{0};
  std::atomic<bool> in_vain_{false};  // somebody has waited, and there was no rest since
  std::shared_mutex gate_;            // shared by launches
  mutable std::mutex kernels_mutex_;  // taken after the gate
  std::vector<const Kernels*> kernels_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<std::function<void()>> waiting_;
  bool busy_ = false, stop_ = false;
  ServiceThread thread_;
};

// A rest, if there is one within 10 s; nothing where nobody keeps count of kernels.
inline CudaRest::Stillness await_rest(const CudaDriver& driver) {
  return driver.rest != nullptr ? driver.rest->await_rest() : CudaRest::Stillness({});
}
// Calls the driver for what may wait for kernels, in such a rest.
template <typename Act>
auto when_still(const CudaDriver& driver, Act&& act) {
  const CudaRest::Stillness still = await_rest(driver);
  return act();
}

// The same of what nobody waits for; at once where nobody keeps count of kernels.
inline void once_still(const CudaDriver& driver, std::function<void()> act) {
  if (driver.rest == nullptr) return act();
  driver.rest->later(std::move(act));
}

}  // namespace gyre::loaded
