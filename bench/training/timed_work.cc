#include "bench/training/timed_work.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <sys/prctl.h>
#include <utility>

namespace gyre::bench {
namespace {

constexpr std::int64_t ns_per_s = 1000000000;
constexpr double ns_per_ms = 1e6;
constexpr std::size_t side = 64;  // three matrices of it are in a first cache

void sleep_until(std::int64_t deadline_ns) {
  const timespec deadline = {deadline_ns / ns_per_s, deadline_ns % ns_per_s};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) continue;
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * ns_per_s + now.tv_nsec;
}

double ms_since(std::int64_t begin_ns) {
  return static_cast<double>(now_ns() - begin_ns) / ns_per_ms;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

TimedWork::TimedWork(double products_per_ms)
    : products_per_ms_(products_per_ms), a_(side * side, 0.5F), b_(a_), c_(a_) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread, in ns; by default a sleep is up to 50 us longer
}

void TimedWork::take(double ms) {
  const std::int64_t begin = now_ns();
  if (products_per_ms_ == 0)
    sleep_until(begin + std::llround(ms * ns_per_ms));
  else
    for (auto i = std::llround(ms * products_per_ms_); i > 0; --i) multiply();
  busy_ms_ += ms_since(begin);
}

double TimedWork::busy_ms() { return std::exchange(busy_ms_, 0); }

double TimedWork::measure_products_per_ms() {
  constexpr int rounds = 5, products = 2000;
  TimedWork work(1);
  std::vector<double> per_ms;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t begin = now_ns();
    for (int i = 0; i < products; ++i) work.multiply();
    per_ms.push_back(products / ms_since(begin));
  }
  return median(per_ms);
}

void TimedWork::multiply() {
  for (std::size_t i = 0; i < side; ++i)
    for (std::size_t k = 0; k < side; ++k)
      for (std::size_t j = 0; j < side; ++j)
        c_[i * side + j] += a_[i * side + k] * b_[k * side + j];
  asm volatile("" : : "r"(c_.data()) : "memory");  // nobody reads it, and it is computed
}

}  // namespace gyre::bench
