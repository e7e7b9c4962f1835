// DeviceWatch: the one thread per process that looks after kernels on their way: it passes aborts
// on to them and makes errors of what they say when they give up. It sleeps while none runs.
#pragma once

#include <atomic>
#include <cstdint>
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

 private:
  void watch();
  bool look_at_all();

  std::mutex mutex_;  // of watched_, stop_, thread_
  std::vector<Communicator*> watched_;
  bool stop_ = false;
  std::atomic<bool> asleep_{false};
  std::atomic<std::uint32_t> called_{0};  // futex word
  std::thread thread_;
};

}  // namespace gyre::comm
