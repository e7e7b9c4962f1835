// DeviceWatch: the one thread per process that looks after kernels on their way: it passes aborts
// on to them and makes errors of what they say when they give up. It sleeps while none runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gyre::comm {

class Communicator;

class DeviceWatch {
 public:
  ~DeviceWatch();
  void add(Communicator& communicator);
  // After it returns, the communicator is not looked at.
  void remove(Communicator& communicator);
  // A kernel was launched. Cheap while the thread is awake.
  void launched();
  // Lets go of it, soon, where the driver may be called; any thread may give it.
  void bury(std::shared_ptr<void> gone);
  // At once, on this thread.
  void empty_graves();

 private:
  void watch();
  bool look_at_all();

  std::mutex mutex_;  // of watched_, stop_, thread_
  std::vector<Communicator*> watched_;
  std::mutex burying_;  // so that nothing is on its way when empty_graves returns
  std::vector<std::shared_ptr<void>> buried_;  // mutex_'s
  bool stop_ = false;
  std::atomic<bool> asleep_{false};
  std::atomic<std::uint32_t> called_{0};  // futex word
  std::thread thread_;
};

}  // namespace gyre::comm
