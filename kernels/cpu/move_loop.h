// The vector move loop, written once for every instruction set, element type and reduction. Each
// instruction set instantiates it with its own Lanes; nothing here names an instruction.
//
//   line     64 bytes of elements: the unit of loading, storing and streaming
//   Machine  Raw, a line as it lies in memory, and how to load, store and stream one
//   Lanes    Line, a line widened for arithmetic in `parts` Registers; unpack: Raw -> Line, load:
//            the same from memory, pack: Line -> Raw (rounds); operations on Registers
//   tile     lines that stay accumulated in the first-level cache while more than `group_sources`
//            sources pass by: too many streams at once are more than a prefetcher follows
//
// Everything is in an unnamed namespace, as each including file is compiled for another processor.
#pragma once

#include "kernels/cpu/move.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#define GYRE_ALWAYS_INLINE [[gnu::always_inline]] inline
// A loop over registers, not over memory: unless it is unrolled whole, they are spilled.
#ifdef __clang__
#define GYRE_UNROLLED _Pragma("unroll")
#else
#define GYRE_UNROLLED _Pragma("GCC unroll 8")
#endif

namespace gyre::kernels {
namespace {

constexpr std::uint64_t line_bytes = 64;
constexpr std::uint32_t group_sources = 8;
constexpr std::uint64_t tile_lines = 32;

template <typename Lanes>
struct LineRegisters {
  typename Lanes::Register part[Lanes::parts];
};

// The reductions, by the names that the tables list them under.
struct Add {
  template <typename Lanes, typename Register>
  GYRE_ALWAYS_INLINE static Register apply(Register a, Register b) {
    return Lanes::add(a, b);
  }
};
struct Multiply {
  template <typename Lanes, typename Register>
  GYRE_ALWAYS_INLINE static Register apply(Register a, Register b) {
    return Lanes::multiply(a, b);
  }
};
struct Minimum {
  template <typename Lanes, typename Register>
  GYRE_ALWAYS_INLINE static Register apply(Register a, Register b) {
    return Lanes::minimum(a, b);
  }
};
struct Maximum {
  template <typename Lanes, typename Register>
  GYRE_ALWAYS_INLINE static Register apply(Register a, Register b) {
    return Lanes::maximum(a, b);
  }
};
struct And {
  template <typename Lanes, typename Register>
  GYRE_ALWAYS_INLINE static Register apply(Register a, Register b) {
    return Lanes::bit_and(a, b);
  }
};
struct Or {
  template <typename Lanes, typename Register>
  GYRE_ALWAYS_INLINE static Register apply(Register a, Register b) {
    return Lanes::bit_or(a, b);
  }
};
struct Xor {
  template <typename Lanes, typename Register>
  GYRE_ALWAYS_INLINE static Register apply(Register a, Register b) {
    return Lanes::bit_xor(a, b);
  }
};

template <typename Lanes, typename Op>
GYRE_ALWAYS_INLINE LineRegisters<Lanes> combine(LineRegisters<Lanes> a,
                                                const LineRegisters<Lanes>& b) {
  GYRE_UNROLLED
  for (int p = 0; p < Lanes::parts; ++p)
    a.part[p] = Op::template apply<Lanes>(a.part[p], b.part[p]);
  return a;
}

// Where a pass begins and which targets it streams: everything is cut so that stores are aligned.
struct Alignment {
  std::uint64_t head_bytes = 0;  // before the first aligned line of the leading target
  std::uint32_t streamed = 0;    // streamed targets whose lines are aligned behind that head
};

GYRE_ALWAYS_INLINE std::uint64_t bytes_to_line(const void* place) {
  return (0 - reinterpret_cast<std::uintptr_t>(place)) % line_bytes;
}

GYRE_ALWAYS_INLINE Alignment align(const MoveOperands& move, std::uint64_t bytes,
                                   std::uint32_t element_size) {
  constexpr std::uint64_t worth_aligning = 8 * line_bytes;
  Alignment alignment;
  if (bytes < worth_aligning) return alignment;
  const std::uint32_t listed = std::min(move.target_count, 32U);
  const std::uint32_t candidates =
      listed == 32 ? move.streamed : move.streamed & ((1U << listed) - 1);
  const int leading = candidates == 0 ? 0 : __builtin_ctz(candidates);
  const std::uint64_t head = bytes_to_line(move.targets[leading]);
  if (head % element_size != 0) return alignment;  // its elements straddle lines: no store aligns
  alignment.head_bytes = head;
  for (std::uint32_t t = 0; t < listed; ++t)
    if (bytes_to_line(move.targets[t]) == head) alignment.streamed |= candidates & (1U << t);
  return alignment;
}

// What is less than a block, or lies before the first aligned line.
template <typename Lanes, typename Op, bool adjusted>
[[gnu::noinline]] void reduce_parts(const MoveOperands& move, std::uint64_t begin,
                                    std::uint64_t end);

// One move. fixed_sources: the number of sources if the compiler is to know it, else 0.
// `this` never leaves run(), so that its fields can live in registers; what is not worth inlining
// there is a static function that makes a Loop of its own.
template <typename Lanes, typename Op, std::uint32_t fixed_sources, bool adjusted>
class Loop {
 public:
  GYRE_ALWAYS_INLINE explicit Loop(const MoveOperands& move)
      : sources_(reinterpret_cast<const std::byte* const*>(move.sources)),
        targets_(reinterpret_cast<std::byte* const*>(move.targets)),
        first_target_(targets_[0]),
        source_count_(fixed_sources != 0 ? fixed_sources : move.source_count),
        target_count_(move.target_count) {
    for (std::uint32_t s = 0; s < fixed_sources; ++s) fixed_[s] = sources_[s];
    if constexpr (adjusted) {
      pre_source_ = move.pre_source;
      if (pre_source_ >= 0) scalar_ = Lanes::broadcast(move.pre_scalar);
      divides_ = move.divisor != 1;
      divisor_ = typename Lanes::Divisor(move.divisor);
    }
  }

  // bytes: of each source. The move's count is of elements of a type that may not be Lanes'.
  GYRE_ALWAYS_INLINE void run(const MoveOperands& move, std::uint64_t bytes) {
    const Alignment alignment = align(move, bytes, Lanes::element_size);
    const std::uint64_t begin = alignment.head_bytes;
    const std::uint64_t end = begin + (bytes - begin) / block_bytes * block_bytes;
    if (begin > 0) reduce_parts<Lanes, Op, adjusted>(move, 0, begin);
    streamed_ = alignment.streamed;
    if (bytes >= worth_claiming) claimed_ = overwritten_sources();
    if constexpr (fixed_sources != 0)
      sweep({0, fixed_sources, true}, begin, end, nullptr);
    else
      tiles(begin, end);
    if (end < bytes) reduce_parts<Lanes, Op, adjusted>(move, end, bytes);
    if (streamed_ != 0) Machine::fence();
  }

  // Up to a line, of all sources at once.
  GYRE_ALWAYS_INLINE void partial_line(std::uint64_t offset, std::uint64_t bytes) const {
    LineRegisters<Lanes> sum[1] = {load_part(0, offset, bytes)};
    for (std::uint32_t s = 1; s < source_count_; ++s)
      sum[0] = combine<Lanes, Op>(sum[0], load_part(s, offset, bytes));
    finish(sum);
    settle(sum);
    const Raw raw = Lanes::pack(sum[0]);
    for (std::uint32_t t = 0; t < target_count_; ++t)
      Machine::store_part(targets_[t] + offset, raw, bytes);
  }

 private:
  using Machine = typename Lanes::Machine;
  using Raw = typename Machine::Raw;
  static constexpr int block_lines = std::max(1, Lanes::block_registers / Lanes::parts);
  static constexpr std::uint64_t block_bytes = block_lines * line_bytes;
  static constexpr std::uint64_t tile_bytes = tile_lines * line_bytes;
  // Widening fills the processor's window with arithmetic, so that it sees too few loads ahead.
  // Measured with bfloat16 from memory: 15 % faster, from the second-level cache as fast as
  // without; for what does not widen it costs a tenth there and brings nothing.
  static constexpr bool widens = sizeof(LineRegisters<Lanes>) > line_bytes;
  static constexpr std::uint64_t prefetch_bytes = 512;
  // A line that is read first and overwritten then crosses the machine twice if another core has
  // it, unless it is fetched for writing at once. Measured with two processes that reduce 21 MB in
  // place: 1.8 ms in place of 2.2, half as far ahead 1.9, twice as far 2.6.
  static constexpr std::uint64_t claim_bytes = 1024;
  static constexpr std::uint64_t worth_claiming = 32 << 10;

  // Bit s: source s is a target, too, whose lines go through the cache.
  GYRE_ALWAYS_INLINE std::uint32_t overwritten_sources() const {
    std::uint32_t found = 0;
    for (std::uint32_t s = 0; s < source_count_ && s < 32; ++s)
      for (std::uint32_t t = 0; t < target_count_ && t < 32; ++t)
        if (targets_[t] == sources_[s] && (streamed_ >> t & 1) == 0) found |= 1U << s;
    return found;
  }

  // Which sources one sweep takes, and whether their sum is then the result.
  struct Sources {
    std::uint32_t first, last;
    bool final;
  };

  GYRE_ALWAYS_INLINE void tiles(std::uint64_t begin, std::uint64_t end) const {
    LineRegisters<Lanes> sums[tile_lines];
    const bool at_once = source_count_ <= group_sources;
    while (begin < end) {
      const std::uint64_t tile_end = at_once ? end : std::min(end, begin + tile_bytes);
      for (std::uint32_t first = 0; first < source_count_; first += group_sources) {
        const std::uint32_t last = std::min(source_count_, first + group_sources);
        sweep({first, last, last == source_count_}, begin, tile_end, sums);
      }
      begin = tile_end;
    }
  }

  GYRE_ALWAYS_INLINE LineRegisters<Lanes> load_part(std::uint32_t source, std::uint64_t offset,
                                                    std::uint64_t bytes) const {
    const Raw raw = Machine::load_part(sources_[source] + offset, bytes);
    LineRegisters<Lanes> values[1] = {Lanes::unpack(raw)};
    scale(source, values);
    return values[0];
  }

  // sums: where partial sums lie between sweeps over the same lines; unused by a single sweep.
  GYRE_ALWAYS_INLINE void sweep(Sources sources, std::uint64_t begin, std::uint64_t end,
                                LineRegisters<Lanes>* sums) const {
    for (std::uint64_t offset = begin; offset < end; offset += block_bytes)
      block(sources, offset, sums + (offset - begin) / line_bytes);
  }

  GYRE_ALWAYS_INLINE void block(Sources sources, std::uint64_t offset,
                                LineRegisters<Lanes>* sums) const {
    LineRegisters<Lanes> sum[block_lines];
    std::uint32_t source = sources.first;
    if (source == 0) {
      load(source++, offset, sum);
    } else {
      GYRE_UNROLLED
      for (int l = 0; l < block_lines; ++l) sum[l] = sums[l];
    }
    for (; source < sources.last; ++source) {
      LineRegisters<Lanes> next[block_lines];
      load(source, offset, next);
      GYRE_UNROLLED
      for (int l = 0; l < block_lines; ++l) sum[l] = combine<Lanes, Op>(sum[l], next[l]);
    }
    if (!sources.final) {
      GYRE_UNROLLED
      for (int l = 0; l < block_lines; ++l) sums[l] = sum[l];
      return;
    }
    finish(sum);
    settle(sum);
    Raw raw[block_lines];
    GYRE_UNROLLED
    for (int l = 0; l < block_lines; ++l) raw[l] = Lanes::pack(sum[l]);
    store(first_target_ + offset, raw, 0);
    for (std::uint32_t t = 1; t < target_count_; ++t) store(targets_[t] + offset, raw, t);
  }

  template <int line_count>
  GYRE_ALWAYS_INLINE void load(std::uint32_t source, std::uint64_t offset,
                               LineRegisters<Lanes> (&values)[line_count]) const {
    const std::byte* place = (fixed_sources != 0 ? fixed_[source] : sources_[source]) + offset;
    const bool claims = source < 32 && (claimed_ >> source & 1) != 0;
    GYRE_UNROLLED
    for (int l = 0; l < line_count; ++l, place += line_bytes) {
      if constexpr (widens) __builtin_prefetch(place + prefetch_bytes);
      if (claims) __builtin_prefetch(place + claim_bytes, 1);
      values[l] = Lanes::load(place);
    }
    scale(source, values);
  }

  template <int line_count>
  GYRE_ALWAYS_INLINE void scale(std::uint32_t source,
                                LineRegisters<Lanes> (&values)[line_count]) const {
    if constexpr (adjusted) {
      if (static_cast<std::int32_t>(source) != pre_source_) return;
      GYRE_UNROLLED
      for (LineRegisters<Lanes>& value : values) {
        GYRE_UNROLLED
        for (auto& part : value.part) part = Lanes::multiply(part, scalar_);
      }
    }
  }

  template <int line_count>
  GYRE_ALWAYS_INLINE void finish(LineRegisters<Lanes> (&sums)[line_count]) const {
    if constexpr (adjusted) {
      if (!divides_) return;
      GYRE_UNROLLED
      for (LineRegisters<Lanes>& sum : sums) sum = Lanes::divide(sum, divisor_);
    }
  }

  // Makes NaNs canonical, where pack does not do that itself. There are hardly ever any, so that
  // one test for many registers is cheaper than a correction of each.
  template <int line_count>
  GYRE_ALWAYS_INLINE static void settle(LineRegisters<Lanes> (&sums)[line_count]) {
    if constexpr (!Lanes::packs_nan) {
      constexpr int count = line_count * Lanes::parts;
      const auto at = [&sums](int i) { return sums[i / Lanes::parts].part[i % Lanes::parts]; };
      auto found = Lanes::unordered(at(0), at(count > 1 ? 1 : 0));
      GYRE_UNROLLED
      for (int i = 2; i < count; i += 2)
        found = Lanes::either(found, Lanes::unordered(at(i), at(i + 1)));
      if (!Lanes::any(found)) [[likely]]
        return;
      GYRE_UNROLLED
      for (LineRegisters<Lanes>& sum : sums) {
        GYRE_UNROLLED
        for (auto& part : sum.part) part = Lanes::canonical(part);
      }
    }
  }

  template <int line_count>
  GYRE_ALWAYS_INLINE void store(std::byte* place, const Raw (&raw)[line_count],
                                std::uint32_t target) const {
    if (target < 32 && (streamed_ >> target & 1) != 0) {
      GYRE_UNROLLED
      for (int l = 0; l < line_count; ++l, place += line_bytes) Machine::stream(place, raw[l]);
    } else {
      GYRE_UNROLLED
      for (int l = 0; l < line_count; ++l, place += line_bytes) Machine::store(place, raw[l]);
    }
  }

  const std::byte* const* const sources_;
  std::byte* const* const targets_;
  std::byte* const first_target_;
  const std::uint32_t source_count_;
  const std::uint32_t target_count_;
  std::uint32_t streamed_ = 0;
  std::uint32_t claimed_ = 0;  // sources whose lines are fetched for writing
  const std::byte* fixed_[std::max(fixed_sources, 1U)] = {};
  std::int32_t pre_source_ = -1;
  bool divides_ = false;
  typename Lanes::Register scalar_{};
  typename Lanes::Divisor divisor_{};
};

template <typename Lanes, typename Op, bool adjusted>
void reduce_parts(const MoveOperands& move, std::uint64_t begin, std::uint64_t end) {
  const Loop<Lanes, Op, 0, adjusted> loop(move);
  for (; begin < end; begin += std::min(line_bytes, end - begin))
    loop.partial_line(begin, std::min(line_bytes, end - begin));
}

template <typename Lanes, typename Op, std::uint32_t fixed_sources, bool adjusted>
[[gnu::noinline]] void reduce(const MoveOperands& move, std::uint64_t bytes) {
  Loop<Lanes, Op, fixed_sources, adjusted>(move).run(move, bytes);
}

}  // namespace
}  // namespace gyre::kernels
