// ResourceUse: the memory, descriptors and threads that this process uses; and how fast a series of
// such figures grows.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <malloc.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gyre::tests {

// A sanitizer's heap keeps what is freed: how much memory is in use tells nothing there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool memory_is_told = false;
#else
inline constexpr bool memory_is_told = true;
#endif

inline int folder_entries(const char* folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder), {}));
}
inline int open_descriptors() { return folder_entries("/proc/self/fd"); }

struct ResourceUse {
  double resident_kib = 0;
  double heap_kib = 0;  // in use
  int descriptors = 0;
  int threads = 0;
  int mappings = 0;

  static ResourceUse take() {
    ResourceUse now;
    now.descriptors = open_descriptors();
    now.threads = folder_entries("/proc/self/task");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) ++now.mappings;
    const struct mallinfo2 heap = mallinfo2();
    now.heap_kib = static_cast<double>(heap.uordblks + heap.hblkhd) / 1024;
    std::ifstream statm("/proc/self/statm");
    double all = 0, resident = 0;
    statm >> all >> resident;
    now.resident_kib = resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
    return now;
  }
  // Once it is down to `limit` in descriptors and heap, or after 5 s: the control thread gives what
  // it has back a little later than the call that no longer needs it.
  static ResourceUse settled(const ResourceUse& limit) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    ResourceUse now = take();
    while ((now.descriptors > limit.descriptors || now.heap_kib > limit.heap_kib) &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      now = take();
    }
    return now;
  }
};

// The slope of the straight line that fits best: units of y for one of x.
inline double slope_of(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum_x += x[i], sum_y += y[i];
    sum_xx += x[i] * x[i], sum_xy += x[i] * y[i];
  }
  return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
}

}  // namespace gyre::tests
