// The host's only arithmetic on payload: reduce these sources into these targets, in one pass.
// MoveOperands is one such act. A MoveFunction does it for one (element type, reduction) on one
// instruction set. Numerics are a contract: every instruction set gives the same bits as the scalar
// reference. Nothing here allocates, waits, fails or knows about ranks, slots and plans.
#pragma once

#include "lib/base/element.h"

#include <cstdint>

namespace gyre::kernels {

// Sources are combined strictly in the order given. Any pointer may have any alignment. A target
// may be exactly the address of a source (in place); nothing else may overlap.
struct MoveOperands {
  const void* const* sources = nullptr;
  std::uint32_t source_count = 0;  // >= 1
  void* const* targets = nullptr;
  std::uint32_t target_count = 0;  // >= 1
  std::uint64_t count = 0;         // elements; 0 touches nothing
  // The next three are for sum, avg and pre_mul_sum; the other reductions leave them as they are.
  std::int32_t pre_source = -1;      // index of the source that *pre_scalar multiplies; -1: none
  const void* pre_scalar = nullptr;  // one element of the type
  std::uint32_t divisor = 1;         // what the combined value is divided by at last; 1: nothing
  std::uint32_t streamed = 0;        // bit i: target i is written past the cache (i < 32)
};

// What a move computes:
//   one source, no pre_source, divisor 1: a copy of the bits; a source that is the target is
//     skipped. Everything else is a reduction:
//   float32, float64     in their own precision, one rounding per operation, never contracted
//   float16, bfloat16, float8_*   widened to float32; product with the scalar, all combinations
//     and the division in float32; rounded once, to nearest even. Too large: Inf, but NaN for
//     e4m3, which has no Inf (never the largest finite number)
//   NaN and Inf propagate, through min and max as well; min(-0, +0) = -0, max(-0, +0) = +0.
//     A NaN result is 0x7fc00000, 0x7ff8000000000000, 0x7e00, 0x7fc0, or 0x7f for both 8-bit types
//   subnormals are kept, rounding is to nearest even, whatever the calling thread's settings are
//   integers wrap (two's complement); the division is of the wrapped sum and truncates to zero
using MoveFunction = void (*)(const MoveOperands&);

// In the order of preference. scalar exists everywhere.
enum class InstructionSet : std::uint8_t { scalar, avx2, avx512, avx512fp16 };
inline constexpr int instruction_set_count = 4;

// The best that this processor, its operating system and this build have.
InstructionSet best_instruction_set();
const char* instruction_set_name(InstructionSet set);

// Bitwise reductions are for integers; every other pair exists.
constexpr bool supported(ElementType type, ReduceOp op) {
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  return !(bitwise && is_float(type));
}

// Never null. A set better than the best one means the best one. An unsupported pair gives a
// function that touches nothing.
MoveFunction find_move(ElementType type, ReduceOp op, InstructionSet set);
MoveFunction find_move(ElementType type, ReduceOp op);

// The sum of two sources alone, without anything before or after it: what small messages need. For
// types whose scalar arithmetic is short; else null. The same bits as the others.
using PairFunction = void (*)(const void* first, const void* second, void* target,
                              std::uint64_t count);
PairFunction find_pair(ElementType type, ReduceOp op);
// Above, the vector functions are faster.
inline constexpr std::uint64_t max_pair_elements = 16;
// The same of two words full of elements, as they lie in memory: what the smallest messages need.
using WordFunction = std::uint64_t (*)(std::uint64_t first, std::uint64_t second);
WordFunction find_word(ElementType type, ReduceOp op);

// One source to all targets, for payload of any type: move.count is in bytes, the rest as above.
void copy_move(const MoveOperands& move);
void copy_move(const MoveOperands& move, InstructionSet set);
// The same from one place to one other; streamed: past the cache.
void copy_move(const void* source, void* target, std::uint64_t bytes, bool streamed = false);
// A result of so many bytes is written past the cache, as it would push out everything else, where
// nobody has measured it (lib/exec/output_pace.h). 4 MiB: with two processes on a busy Zen 3 all
// calls of 4 and 8 MiB take 0.65 to 0.9 of the time then, those of 1 and 2 MiB up to 1.5 times.
// 16 MiB where copies are by string: on a Zen 5, calls of 4 and 8 MiB past the cache take 1.0 to
// 2.6 times as long, and those of 16 and 32 MiB 0.8 to 1.07 times.
std::uint64_t min_streamed_bytes();

}  // namespace gyre::kernels
