#include "transports/tcp/rail_pace.h"

#include "lib/base/clock.h"

#include <algorithm>

namespace gyre::transport {
namespace {

// The kernel counts its time in ticks of up to 10 ms.
constexpr std::int64_t min_sample_ns = 10 * ns_per_ms;
// A sample of so long counts as much as all before it.
constexpr double memory_ns = 20 * ns_per_ms;
// Where nobody looked for longer, small messages may have been sent, whose time is all waiting.
constexpr std::int64_t max_gap_ns = 20 * ns_per_ms;
// A rail that seems slow is left out, so nothing more is learnt of it. It is tried again after
// this.
constexpr std::int64_t forget_ns = ns_per_s;

}  // namespace

void RailPace::look(const Deliveries& seen, std::int64_t now_ns) {
  const std::int64_t gap_ns = now_ns - looked_ns_;
  looked_ns_ = now_ns;
  if (now_ns - learnt_ns_ > forget_ns) bytes_per_ns_ = 0;
  backlog_bytes_ = seen.backlog_bytes;
  const std::int64_t busy_ns = seen.busy_ns - begin_.busy_ns;
  if (gap_ns <= max_gap_ns && busy_ns < min_sample_ns) return;
  if (gap_ns <= max_gap_ns) {
    const auto ns = static_cast<double>(busy_ns);
    const double sample =
        std::max(static_cast<double>(seen.delivered_bytes - begin_.delivered_bytes), 1.0) / ns;
    const double weight = bytes_per_ns_ == 0 ? 1 : ns / (ns + memory_ns);
    bytes_per_ns_ += (sample - bytes_per_ns_) * weight;
    learnt_ns_ = now_ns;
  }
  begin_ = seen;
}

}  // namespace gyre::transport
