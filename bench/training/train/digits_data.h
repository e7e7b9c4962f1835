// Pictures of handwritten digits, 8 x 8 points of 0 to 16, in scikit-learn's file format: lines of
// 64 points and the digit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::training {

struct DigitsData {
  static constexpr std::size_t features = 64, kinds = 10;
  std::string source;  // for people
  std::vector<std::uint8_t> values, labels;

  std::size_t count() const { return labels.size(); }
};

// Of CSV. Empty, or why not, with the line.
std::string parse_digits(std::string_view text, DigitsData* data);
// Noisy copies of ten patterns that `seed` draws.
DigitsData make_digits(std::uint64_t seed, std::size_t count);
// Of a file; if none is given, of Debian's python3-sklearn, or made up. Empty, or why not.
std::string load_digits(const std::vector<std::string>& paths, std::uint64_t seed,
                        DigitsData* data);

}  // namespace gyre::training
