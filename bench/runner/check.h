// Check: is this output what the collective had to deliver? Every element is compared with a
// reference that is computed here in wider precision from all ranks' inputs. Integers, minima,
// maxima and bitwise reductions must match exactly; sums and products of floats must lie within a
// bound that is derived, not chosen (see rounding_bound in check.cc).
#pragma once

#include "bench/runner/elements.h"

#include <cstdint>
#include <string>

namespace gyre::bench {

struct CheckOutcome {
  std::uint64_t wrong = 0;  // elements
  std::string first;        // what the first wrong element was, for people; empty if none
  void add(const CheckOutcome& other) {
    wrong += other.wrong;
    if (first.empty()) first = other.first;
  }
};

// `output` must be elements [first, first + count) of the reduction over `ranks` inputs.
CheckOutcome check_reduction(const Recipe& recipe, int ranks, std::uint64_t first,
                             std::uint64_t count, const void* output);

// `output` must be elements [first, first + count) of `rank`'s input, bit for bit.
CheckOutcome check_copy(const Recipe& recipe, int rank, std::uint64_t first, std::uint64_t count,
                        const void* output);

// How many of `bytes` are no longer `was`.
std::uint64_t changed_bytes(const void* data, std::uint64_t bytes, unsigned char was);

// Bytes around an output that nobody may write.
inline constexpr std::uint64_t guard_bytes = 256;
void write_guard(void* guard);
// The bytes of it that were written over.
std::uint64_t damaged_guard_bytes(const void* guard);

// A hash of bits: equal outputs have equal ones.
std::uint64_t fingerprint(const void* data, std::uint64_t bytes);

}  // namespace gyre::bench
