#include "lib/gradsync/sampler.h"

#include <algorithm>
#include <bit>

namespace gyre::gradsync {
namespace {

// The finisher of SplitMix64 (Steele, Lea, Flood: OOPSLA 2014).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

}  // namespace

std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, std::uint64_t seed,
                       std::uint64_t epoch) {
  constexpr std::uint64_t rounds = 6;
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  const std::uint64_t key = mix(mix(seed) ^ epoch);
  // The domain has fewer than 4 count numbers, so a few turns are enough; a permutation's cycle
  // leads back to `index` < count at the latest.
  do {
    std::uint64_t left = index >> half_bits, right = index & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t next = left ^ (mix((key + round) ^ (right << 8)) & mask);
      left = right;
      right = next;
    }
    index = left << half_bits | right;
  } while (index >= count);
  return index;
}

}  // namespace gyre::gradsync
