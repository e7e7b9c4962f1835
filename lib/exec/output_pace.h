// OutputPace: whether the output of a kind of large call leaves past the cache. Where the output
// stays in the cache from call to call, copies past it take up to twice as long. Elsewhere copies
// through the cache take up to 1.4 times as long. The border depends on the program's other memory,
// and on who else uses the cache: other virtual machines, too. So both ways are timed now and then,
// by what the copies take, without any wait (docs/decisions/51).
#pragma once

#include "kernels/cpu/move.h"
#include "lib/base/ticks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace gyre::exec {

class OutputPace {
 public:
  // Smaller outputs leave through the cache, and larger ones past it.
  static constexpr std::uint64_t min_bytes = 2 << 20, max_bytes = 16 << 20;

  explicit OutputPace(std::uint64_t bytes)
      : varies_(bytes >= min_bytes && bytes <= max_bytes),
        streams_(bytes >= kernels::min_streamed_bytes()) {}

  // Whether the output of the call that begins leaves past the cache.
  bool begin_call() {
    ticks_ = bytes_ = 0;
    return streams_ != (varies_ && turn_ >= trial());
  }
  bool is_timed() const {
    return varies_ &&
           (turn_ >= period_ - samples || (turn_ < trial() && turn_ >= trial() - samples));
  }
  // `move` carries out a part of the call.
  template <typename Move>
  void time(std::uint64_t bytes, const Move& move) {
    if (!is_timed()) return move();
    static const TickSource source = tick_source();
    const std::uint64_t begin = read_ticks(source);
    move();
    took(read_ticks(source) - begin, bytes);
  }
  void took(std::uint64_t ticks, std::uint64_t bytes) {
    ticks_ += ticks;
    bytes_ += bytes;
  }
  // Not called for a call that fails: the next one takes its turn.
  void end_call() {
    if (!varies_) return;
    if (is_timed() && bytes_ > 0) {
      std::uint64_t& least = turn_ < trial() ? usual_ : other_;
      least = std::min(least, ticks_ * 1024 / bytes_);
    }
    if (++turn_ == period_) decide();
  }

 private:
  // A period ends with calls of the other way. Only the last ones are timed: the others find the
  // cache as the usual way has left it. Of the usual way as many are timed, just before.
  static constexpr std::uint32_t samples = 3, trials = 2 * samples;
  static constexpr std::uint32_t min_period = 32, max_period = 2048;
  static constexpr std::uint64_t unknown = UINT64_MAX;

  std::uint32_t trial() const { return period_ - trials; }
  // What is clearly worse is tried seldom.
  void decide() {
    turn_ = 0;
    if (usual_ != unknown && other_ < usual_ - usual_ / 16) {
      streams_ = !streams_;
      period_ = min_period;
    } else {
      period_ = std::min(period_ * (other_ > usual_ + usual_ / 8 ? 4 : 2), max_period);
    }
    other_ = usual_ = unknown;
  }

  bool varies_ = false;
  bool streams_ = false;
  std::uint32_t period_ = min_period;
  std::uint32_t turn_ = 0;
  std::uint64_t other_ = unknown, usual_ = unknown;  // ticks for 1,024 bytes
  std::uint64_t ticks_ = 0, bytes_ = 0;              // of this call
};

// For outputs of any size.
class OutputPaces {
 public:
  OutputPace& of(std::uint64_t bytes) {
    return paces_[std::min<std::size_t>(std::bit_width(bytes / OutputPace::min_bytes),
                                        paces_.size() - 1)];
  }

 private:
  static constexpr std::uint64_t unit = OutputPace::min_bytes;
  static_assert(16 * unit > OutputPace::max_bytes);
  std::array<OutputPace, 6> paces_{OutputPace(0),        OutputPace(unit),
                                   OutputPace(2 * unit), OutputPace(4 * unit),
                                   OutputPace(8 * unit), OutputPace(16 * unit)};
};

}  // namespace gyre::exec
