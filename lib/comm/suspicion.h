// Suspicion: a symptom of a failure that this rank saw, kept until the control plane says which
// rank caused it. A broken link is only a symptom. If no cause comes in time, the peer at the
// link's other end is blamed.
#pragma once

#include "lib/base/clock.h"
#include "lib/base/status.h"

#include <utility>

namespace gyre::comm {

class Suspicion {
 public:
  void begin(Status what, std::int64_t now_ns) {
    const bool mismatch = what.code() == Code::Mismatch;
    what_ = std::move(what);
    until_ns_ = now_ns + (mismatch ? mismatch_patience_ns : patience_ns);
  }
  const Status& what() const { return what_; }
  void clear() { until_ns_ = 0; }
  bool held() const { return until_ns_ != 0; }
  bool ripe(std::int64_t now_ns) const { return now_ns >= until_ns_; }
  Status take() { return std::move(what_); }

 private:
  static constexpr std::int64_t patience_ns = 2 * ns_per_s;
  // The other rank was asked for its call, and its control thread answers.
  static constexpr std::int64_t mismatch_patience_ns = 700 * ns_per_ms;
  Status what_;
  std::int64_t until_ns_ = 0;
};

}  // namespace gyre::comm
