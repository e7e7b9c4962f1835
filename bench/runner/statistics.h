// Statistics of the times of single iterations. Percentiles are nearest-rank: a time that really
// occurred; with fewer than 100 samples p99 is the maximum.
#pragma once

#include <span>

namespace gyre::bench {

struct IterationStatistics {
  double least = 0;
  double most = 0;
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double deviation = 0;          // standard deviation of the samples
  double variation_percent = 0;  // deviation over mean
};

// All zero for no samples.
IterationStatistics summarize(std::span<const double> samples);

}  // namespace gyre::bench
