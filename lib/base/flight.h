// FlightEntry: the record of one operation, for tools: the call, its times and its outcome. The
// last 1,024 of each communicator lie in shared memory, a cache line each; see state_page.h.
//
// A small operation takes less time than two readings of a clock. So an operation costs only stores
// until its first message. Its start is stamped when it first has to wait for a peer. Its end is
// stamped only if it is large or waited long; else it is estimated, see FlightEnd.
// bench/micro/flight_bench.cc has the figures.
#pragma once

#include "lib/base/double_buffered.h"
#include "lib/base/ticks.h"

#include <cstdint>
#include <utility>

namespace gyre {

inline constexpr std::uint32_t flight_count = 1024;
// From here on a clock reading at each end is lost in the operation's own time.
inline constexpr std::uint64_t timed_flight_bytes = 64 << 10;

enum class FlightEnd : std::uint8_t {
  open,   // not yet
  exact,  // by the counter
  soon,   // within the first spins after the start: microseconds
  late,   // it never waited: by the kernel's last timer tick, up to 10 ms too early, start unknown
};

// What of an operation is known when it begins. The codes are indices into the state page's names.
struct FlightCall {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;  // elements
  std::uint64_t bytes = 0;
  std::int32_t root = 0;
  std::uint8_t function = 0;
  std::uint8_t type = 0;
  std::uint8_t op = 0;
  std::uint8_t algorithm = 0;
  std::uint8_t protocol = 0;
};

// The same of short operations that are alike, in the words that a line keeps.
struct ShortFlight {
  std::uint64_t count = 0, bytes = 0;  // fewer than timed_flight_bytes
  std::uint64_t codes = 0, root = 0;

  static constexpr ShortFlight of(const FlightCall& call) {
    return {call.count, call.bytes,
            std::uint64_t{call.function} | std::uint64_t{call.type} << 8 |
                std::uint64_t{call.op} << 16 | std::uint64_t{call.algorithm} << 24 |
                std::uint64_t{call.protocol} << 32,
            static_cast<std::uint32_t>(call.root)};
  }
};

// A finished or open operation, as read.
struct FlightEntry {
  std::uint64_t serial = 0;  // on its communicator, from 1; one a nanosecond: 584 years
  FlightCall call;
  std::uint64_t start_ticks = 0;  // 0: not known
  std::uint64_t end_ticks = 0;    // FlightEnd::late: nanoseconds of the clock
  FlightEnd end = FlightEnd::open;
  std::uint8_t outcome = 0;  // a Code
};

struct alignas(64) FlightLine {
  SharedWord serial;  // 0 while the rest changes
  SharedWord sequence, count, bytes;
  SharedWord codes;  // function, type, op, algorithm, protocol, outcome, end: a byte each
  SharedWord root;
  SharedWord start, end;
};
static_assert(sizeof(FlightLine) == 64);

// The operation that goes on; its owner holds it. One thread at a time.
class OpenFlightEntry {
 public:
  // `line` belongs to serial % flight_count.
  void begin(FlightLine& line, std::uint64_t serial, const FlightCall& call, TickSource source) {
    begin(line, serial, call.sequence, ShortFlight::of(call));
    is_timed_ = call.bytes >= timed_flight_bytes;
    if (!is_timed_) return;
    start_ = read_ticks(source);
    line.start.store(start_, std::memory_order_release);
  }
  [[gnu::always_inline]] void begin(FlightLine& line, std::uint64_t serial, std::uint64_t sequence,
                                    const ShortFlight& call) {
    line_ = &line;
    is_timed_ = false;
    codes_ = call.codes;
    start_ = 0;
    // A reader that sees a word of this flight sees that the former one is gone, and at last that
    // this one is whole: each store pairs with an acquire in read_flight.
    line.serial.store(0, std::memory_order_relaxed);
    line.sequence.store(sequence, std::memory_order_release);
    line.count.store(call.count, std::memory_order_release);
    line.bytes.store(call.bytes, std::memory_order_release);
    line.codes.store(call.codes, std::memory_order_release);
    line.root.store(call.root, std::memory_order_release);
    line.start.store(0, std::memory_order_release);
    line.end.store(0, std::memory_order_release);
    line.serial.store(serial, std::memory_order_release);
  }

  // By which algorithm and protocol it is carried out: known after the call is looked at.
  void choose(std::uint8_t algorithm, std::uint8_t protocol) {
    constexpr std::uint64_t both = 0xffffULL << 24;
    codes_ = (codes_ & ~both) | std::uint64_t{algorithm} << 24 | std::uint64_t{protocol} << 32;
    line_->codes.store(codes_, std::memory_order_release);
  }

  // When it first waits for a peer: the clock is read while there is nothing else to do.
  void stamp(TickSource source) {
    if (start_ != 0 || line_ == nullptr) return;
    start_ = read_ticks(source);
    line_->start.store(start_, std::memory_order_release);
  }

  // It has waited long: the clock is read at its end, too.
  void time_end() { is_timed_ = true; }

  // It is open.
  [[gnu::always_inline]] void end(std::uint8_t outcome, TickSource source) {
    FlightEnd how = FlightEnd::soon;
    std::uint64_t at = start_;
    if (is_timed_) {
      how = FlightEnd::exact;
      at = read_ticks(source);
    } else if (start_ == 0) {
      how = FlightEnd::late;
      at = static_cast<std::uint64_t>(read_coarse_ns());
    }
    FlightLine& line = *std::exchange(line_, nullptr);
    line.codes.store(codes_ | std::uint64_t{outcome} << 40 | static_cast<std::uint64_t>(how) << 48,
                     std::memory_order_release);
    // Pairs with the acquire in read_flight: who sees the end sees the outcome.
    line.end.store(at, std::memory_order_release);
  }

  bool is_open() const { return line_ != nullptr; }
  // While it is open.
  std::uint8_t function() const { return static_cast<std::uint8_t>(codes_); }
  std::uint64_t bytes() const { return line_->bytes.load(std::memory_order_relaxed); }
  std::uint64_t sequence() const { return line_->sequence.load(std::memory_order_relaxed); }
  std::uint64_t serial() const { return line_->serial.load(std::memory_order_relaxed); }

 private:
  FlightLine* line_ = nullptr;
  bool is_timed_ = false;
  std::uint64_t codes_ = 0;
  std::uint64_t start_ = 0;
};

// Nothing if the line was never used, or changed meanwhile.
inline std::optional<FlightEntry> read_flight(const FlightLine& line) {
  FlightEntry flight;
  flight.serial = line.serial.load(std::memory_order_acquire);
  if (flight.serial == 0) return std::nullopt;
  flight.end_ticks = line.end.load(std::memory_order_acquire);
  flight.start_ticks = line.start.load(std::memory_order_acquire);
  flight.call.sequence = line.sequence.load(std::memory_order_acquire);
  flight.call.count = line.count.load(std::memory_order_acquire);
  flight.call.bytes = line.bytes.load(std::memory_order_acquire);
  flight.call.root = static_cast<std::int32_t>(line.root.load(std::memory_order_acquire));
  const std::uint64_t codes = line.codes.load(std::memory_order_acquire);
  if (line.serial.load(std::memory_order_relaxed) != flight.serial) return std::nullopt;
  const auto code = [&](int index) { return static_cast<std::uint8_t>(codes >> 8 * index); };
  flight.call.function = code(0);
  flight.call.type = code(1);
  flight.call.op = code(2);
  flight.call.algorithm = code(3);
  flight.call.protocol = code(4);
  if (flight.end_ticks == 0) return flight;
  flight.outcome = code(5);
  flight.end = static_cast<FlightEnd>(code(6));
  return flight;
}

}  // namespace gyre
