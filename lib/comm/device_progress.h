// DeviceProgress: the one thread per process that drives relays between GPUs (device_relays.h). It
// calls no driver, which may make it wait for kernels that wait for it. What kernels tell wakes
// nobody, so it looks at ever longer intervals: an eighth of what nothing has moved for, at most a
// millisecond while kernels run. No thread without relays.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace gyre::comm {

class DeviceRelays;

class DeviceProgress {
 public:
  DeviceProgress() = default;
  ~DeviceProgress();
  DeviceProgress(const DeviceProgress&) = delete;
  DeviceProgress& operator=(const DeviceProgress&) = delete;

  void add(DeviceRelays& relays);
  // After it returns, they are not driven.
  void remove(DeviceRelays& relays);
  // There may be something to move.
  void wake();

 private:
  class Turn;  // holds mutex_, which the thread keeps while it sleeps
  void drive();
  bool advance_all();
  void sleep(std::uint32_t seen, std::int64_t idle_ns);

  std::mutex mutex_;  // of driven_, stop_, thread_
  std::vector<DeviceRelays*> driven_;
  bool stop_ = false;
  std::atomic<std::uint32_t> called_{0};   // futex word
  std::atomic<std::uint32_t> in_line_{0};  // who waits for mutex_
  std::thread thread_;
};

}  // namespace gyre::comm
