// The 16- and 8-bit float conversions, exhaustively, against the formats' definitions.
#include "kernels/cpu/narrow_float.h"

#include "tests/support/catch.h"
#include "tests/support/kernels/move_oracle.h"

#include <cmath>

namespace narrow_float_test {

using namespace gyre;
using namespace gyre::kernels;

namespace {

using oracle::Code;

template <typename Format>
void check_conversions(ElementType type) {
  const std::vector<double>& values = oracle::magnitudes(type);
  const auto narrow = [](float value) {
    return Format::narrow(__builtin_bit_cast(std::uint32_t, value));
  };
  for (Code code = 0; code < Code{1} << (8 * element_bytes(type)); ++code) {
    const double value = oracle::float_value(code, type);
    const auto widened = __builtin_bit_cast(float, Format::widen(static_cast<std::uint32_t>(code)));
    if (std::isnan(value)) {
      CHECK((std::isnan(widened) && narrow(widened) == oracle::narrow_shape(type).nan));
      continue;
    }
    const bool same = static_cast<double>(widened) == value &&
                      std::signbit(widened) == std::signbit(value) && narrow(widened) == code;
    if (!same) FAIL_CHECK("code " << code);
  }
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i] + values[i + 1]) / 2);
    for (float at : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, INFINITY)})
      for (float value : {at, -at})
        if (narrow(value) != oracle::narrow_code(static_cast<double>(value), type))
          FAIL_CHECK("around " << value);
  }
}

TEST_CASE("every narrow float converts to float32 and back, and every middle rounds to even") {
  check_conversions<Float16>(ElementType::float16);
  check_conversions<BFloat16>(ElementType::bfloat16);
  check_conversions<Float8E4M3>(ElementType::float8_e4m3);
  check_conversions<Float8E5M2>(ElementType::float8_e5m2);
}

}  // namespace

}  // namespace narrow_float_test
