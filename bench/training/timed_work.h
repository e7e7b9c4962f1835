// Work that takes a given time: a sleep, or products of matrices.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre::bench {

std::int64_t now_ns();
double ms_since(std::int64_t begin_ns);
double median(std::vector<double> values);

// Used by the thread that made it.
class TimedWork {
 public:
  // 0: it sleeps.
  explicit TimedWork(double products_per_ms);

  void take(double ms);
  // What it has taken since the last time that it was asked.
  double busy_ms();

  // On this processor, now: the median of some rounds.
  static double measure_products_per_ms();

 private:
  void multiply();

  const double products_per_ms_;
  std::vector<float> a_, b_, c_;
  double busy_ms_ = 0;
};

}  // namespace gyre::bench
