// SlotPace: whether what this end writes into a link's slots goes past its cache. Cores that share
// no cache pass a line on slowly. On a Zen 4 with cores of two dies it takes 32 ns a line (2 GB/s)
// to write what the other core has read, and 4 to 5 ns past the cache. On one die it takes 2 ns,
// and 4 past the cache. Machines do not say reliably how cores lie, and virtual ones move them. So
// both ways are timed now and then (docs/decisions/50).
#pragma once

#include "lib/base/ticks.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace gyre::exec {

class SlotPace {
 public:
  // Of shorter messages the clock would take too much.
  static constexpr std::uint64_t min_bytes = 8192;

  // Of the next message: past the cache.
  bool streams() const { return streams_ != (turn_ < samples); }
  // Whether its time is to be told by `took`; else there is a `skip`.
  bool is_timed() const { return turn_ < 2 * samples; }
  void skip() { turn_ = (turn_ + 1) % period; }
  void took(std::uint64_t ticks, std::uint64_t bytes) {
    const std::uint64_t cost = ticks * 1024 / bytes;
    std::uint64_t& least = turn_ < samples ? other_ : usual_;
    least = turn_ % samples == 0 ? cost : std::min(least, cost);
    skip();
    if (turn_ == 2 * samples) decide();
  }

 private:
  // A period begins with messages of the other way; as many of the usual way are timed after them.
  // The least of a few: a thread may lose its processor in the middle of one.
  static constexpr std::uint32_t samples = 2;
  static constexpr std::uint32_t period = 256;

  // The reader finds what passed the cache in memory, so that way has to be twice as fast.
  void decide() {
    const std::uint64_t cached = streams_ ? other_ : usual_, past = streams_ ? usual_ : other_;
    streams_ = 2 * past < cached;
  }

  bool streams_ = false;
  std::uint32_t turn_ = period - 16;
  std::uint64_t other_ = 0, usual_ = 0;  // ticks for 1,024 bytes
};

// `write(streamed)` writes a message of so many bytes into the next slot of the port, which has a
// pace and slots.
template <typename Port, typename Write>
void write_paced(Port& port, std::uint64_t bytes, const Write& write) {
  SlotPace& pace = port.pace;
  if (bytes < SlotPace::min_bytes || !port.slots.goes_one_way()) return write(false);
  const bool streamed = pace.streams();
  if (!pace.is_timed()) [[likely]] {
    pace.skip();
    return write(streamed);
  }
  static const TickSource source = tick_source();
  const std::uint64_t begin = read_ticks(source);
  write(streamed);
  pace.took(read_ticks(source) - begin, bytes);
}

}  // namespace gyre::exec
