// ExactSum: a sum of nonnegative numbers without rounding. So it does not depend on their order,
// nor on which rank adds which. It is a fixed-point number, as in Kulisch's accumulators.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre::gradsync {

class ExactSum {
 public:
  // Numbers are multiples of 2^-350 below 2^280: blocks' sums of squares of float32 are. Others,
  // Inf and NaN count as overflow.
  void add(double value);
  void add(std::span<const double> values) {
    for (const double value : values) add(value);
  }

  // To sum over ranks, at most 2^30 of them: element by element, as int64.
  static constexpr std::size_t word_count = 23;
  std::span<std::int64_t, word_count> words();

  bool overflows() const { return words_[overflow_word] != 0; }
  // Rounded from the highest word down: the same number for the same sum.
  double value();

 private:
  void carry();

  static constexpr std::size_t overflow_word = word_count - 1;
  static constexpr int word_bits = 32;
  static constexpr int min_exponent = -352;  // of the first word's lowest bit
  std::array<std::int64_t, word_count> words_{};
  std::uint32_t added_ = 0;  // since the last carry
};

}  // namespace gyre::gradsync
