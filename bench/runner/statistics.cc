// Statistics of iteration times, see statistics.h.
#include "bench/runner/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace gyre::bench {

IterationStatistics summarize(std::span<const double> samples) {
  IterationStatistics result;
  if (samples.empty()) return result;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t count = sorted.size();
  const auto percentile = [&](std::size_t percent) {
    return sorted[std::min(count, (count * percent + 99) / 100) - 1];
  };
  result.least = sorted.front();
  result.most = sorted.back();
  result.p50 = sorted[count / 2];
  result.p95 = percentile(95);
  result.p99 = percentile(99);
  result.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double sample : sorted) squares += (sample - result.mean) * (sample - result.mean);
  result.deviation = std::sqrt(squares / static_cast<double>(count));
  if (result.mean > 0) result.variation_percent = result.deviation / result.mean * 100;
  return result;
}

}  // namespace gyre::bench
