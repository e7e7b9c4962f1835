// RailPace: how fast one of several sockets delivers, as the kernel counts it. It says when further
// bytes would be there.
#pragma once

#include "transports/tcp/socket.h"

#include <cstdint>

namespace gyre::transport {

class RailPace {
 public:
  void look(const Deliveries& seen, std::int64_t now_ns);
  // 0: nothing is known, or nothing recent.
  double bytes_per_ns() const { return bytes_per_ns_; }
  double bytes_per_ns_or(double guess) const { return bytes_per_ns_ > 0 ? bytes_per_ns_ : guess; }
  std::uint64_t backlog_bytes() const { return backlog_bytes_; }
  // Until what the kernel had at the last look and these bytes have been delivered. `guess`: how
  // fast, where nothing is known.
  double ns_for(std::uint64_t bytes, double guess) const {
    return static_cast<double>(backlog_bytes_ + bytes) / bytes_per_ns_or(guess);
  }

 private:
  Deliveries begin_;  // of the sample
  std::uint64_t backlog_bytes_ = 0;
  std::int64_t looked_ns_ = 0;
  std::int64_t learnt_ns_ = 0;
  double bytes_per_ns_ = 0;
};

}  // namespace gyre::transport
