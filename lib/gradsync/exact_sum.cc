#include "lib/gradsync/exact_sum.h"

#include <cmath>

namespace gyre::gradsync {
namespace {

__extension__ using Wide128 = unsigned __int128;

}  // namespace

void ExactSum::add(double value) {
  if (value == 0) return;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // value = fraction 2^exponent
  constexpr int mantissa_bits = 53;
  const int place = exponent - mantissa_bits - min_exponent;  // of the mantissa's lowest bit
  constexpr int max_place = static_cast<int>(overflow_word - 3) * word_bits;
  if (!(value > 0) || !std::isfinite(value) || place >= max_place || place < -mantissa_bits) {
    ++words_[overflow_word];
    return;
  }
  auto mantissa = static_cast<Wide128>(std::ldexp(fraction, mantissa_bits));
  // Below the first word a mantissa has only zeros.
  if (place < 0)
    mantissa >>= -place;
  else
    mantissa <<= place % word_bits;
  for (std::size_t word = place < 0 ? 0 : static_cast<std::size_t>(place / word_bits);
       mantissa != 0; ++word, mantissa >>= word_bits)
    words_[word] += static_cast<std::int64_t>(mantissa & 0xffffffff);
  constexpr std::uint32_t max_added = 1U << 29;
  if (++added_ == max_added) carry();
}

// Every word but the last but one below 2^32.
void ExactSum::carry() {
  for (std::size_t word = 0; word + 1 < overflow_word; ++word) {
    words_[word + 1] += words_[word] >> word_bits;
    words_[word] &= 0xffffffff;
  }
  added_ = 0;
}

std::span<std::int64_t, ExactSum::word_count> ExactSum::words() {
  carry();
  return words_;
}

double ExactSum::value() {
  carry();
  double sum = 0;
  for (std::size_t word = overflow_word; word-- > 0;)
    sum += std::ldexp(static_cast<double>(words_[word]),
                      min_exponent + static_cast<int>(word) * word_bits);
  return sum;
}

}  // namespace gyre::gradsync
