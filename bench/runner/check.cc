// Check: the references and the bound, see check.h.
#include "bench/runner/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace gyre::bench {
namespace {

constexpr std::uint64_t block_elements = 256;

template <typename Value>
Value load(const void* data, std::uint64_t index) {
  Value value{};
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof value, sizeof value);
  return value;
}

// ---- integers: exact, modulo 2^bits

template <typename Integer>
Integer combine(ReduceOp op, Integer a, Integer b) {
  using Unsigned = std::make_unsigned_t<Integer>;
  // Computed in 64 bits without a sign, where wrapping is defined, then cut.
  const auto wide_a = static_cast<std::uint64_t>(static_cast<Unsigned>(a));
  const auto wide_b = static_cast<std::uint64_t>(static_cast<Unsigned>(b));
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::pre_mul_sum:
      return static_cast<Integer>(wide_a + wide_b);
    case ReduceOp::prod:
      return static_cast<Integer>(wide_a * wide_b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::band:
      return static_cast<Integer>(wide_a & wide_b);
    case ReduceOp::bor:
      return static_cast<Integer>(wide_a | wide_b);
    case ReduceOp::bxor:
      break;
  }
  return static_cast<Integer>(wide_a ^ wide_b);
}

template <typename Integer>
Integer integer_operand(const Recipe& recipe, int rank, std::uint64_t random) {
  const Integer value = integer_input<Integer>(recipe.op, random);
  if (recipe.op != ReduceOp::pre_mul_sum) return value;
  return combine(ReduceOp::prod, value, static_cast<Integer>(factor_bits(recipe.type, rank)));
}

// The wrapped sum, divided and cut toward zero (gyre.h, gyreAvg).
template <typename Integer>
Integer divide(Integer sum, int ranks) {
  if constexpr (std::is_signed_v<Integer>)
    return static_cast<Integer>(static_cast<std::int64_t>(sum) / ranks);
  else
    return static_cast<Integer>(static_cast<std::uint64_t>(sum) /
                                static_cast<std::uint64_t>(ranks));
}

template <typename Integer>
CheckOutcome check_integers(const Recipe& recipe, int ranks, std::uint64_t first,
                            std::uint64_t count, const void* output) {
  CheckOutcome outcome;
  Integer expected[block_elements];
  for (std::uint64_t begin = 0; begin < count; begin += block_elements) {
    const std::uint64_t size = std::min(block_elements, count - begin);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::uint64_t key = input_key(recipe.seed, rank);
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t random = input_bits(key, first + begin + i);
        const Integer operand = integer_operand<Integer>(recipe, rank, random);
        expected[i] = rank == 0 ? operand : combine(recipe.op, expected[i], operand);
      }
    }
    for (std::uint64_t i = 0; i < size; ++i) {
      const Integer want = recipe.op == ReduceOp::avg ? divide(expected[i], ranks) : expected[i];
      const Integer got = load<Integer>(output, begin + i);
      if (got == want) continue;
      if (outcome.wrong++ == 0)
        outcome.first = fmt::format("element {} is {}, must be {}", first + begin + i, +got, +want);
    }
  }
  return outcome;
}

// ---- floats, exact: minimum and maximum return one of their operands

template <typename Format>
CheckOutcome check_extremes(const Recipe& recipe, int ranks, std::uint64_t first,
                            std::uint64_t count, const void* output) {
  CheckOutcome outcome;
  std::vector<std::uint64_t> keys;
  for (int rank = 0; rank < ranks; ++rank) keys.push_back(input_key(recipe.seed, rank));
  for (std::uint64_t i = 0; i < count; ++i) {
    auto want = float_input<Format>(recipe.op, input_bits(keys[0], first + i));
    for (std::size_t rank = 1; rank < keys.size(); ++rank) {
      const auto operand = float_input<Format>(recipe.op, input_bits(keys[rank], first + i));
      const double a = Format::decode(want), b = Format::decode(operand);
      if (recipe.op == ReduceOp::max ? b > a : b < a) want = operand;
    }
    const auto got = load<typename Format::Bits>(output, i);
    if (got == want) continue;
    if (outcome.wrong++ == 0)
      outcome.first = fmt::format("element {} is {}, must be {}", first + i, Format::decode(got),
                                  Format::decode(want));
  }
  return outcome;
}

// ---- floats, rounded

// What rounding may do to a float result, relative to `magnitude`, plus what underflow may do.
struct RoundingBound {
  long double relative = 0;  // times the sum of magnitudes, or the magnitude of the product
  long double absolute = 0;  // times the growth that follows an underflow (1 for sums)
  long double overflow = 0;  // an intermediate magnitude above this may have become Inf or NaN
};

// Derivation. Whatever the algorithm, the result is a tree of `ranks` operands, so each operand
// takes part in at most k = ranks - 1 operations (+ 1 for the division of avg, + 1 for the product
// of a pre-multiplied sum). Each operation on a type of 32 or more bits multiplies by one
// (1 + d), |d| <= u; on a narrower type by (1 + d)(1 + d') with |d| <= 2^-24 for the arithmetic in
// 32 bits and |d'| <= u for storing the partial result, which a ring does at every hop. So
//     computed = sum x_i (1 + e_i),   |e_i| <= (1 + delta)^k - 1,
// which is the standard model and Lemma 3.1 in N. J. Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed. (SIAM 2002), before it is weakened to gamma_k, and sections 4.2 (sums in any
// order) and 3.1 (products). Storing a subnormal adds at most half of the smallest one, each time.
// The reference has the same form with its own unit, and that is added.
template <typename Format, typename Wide>
RoundingBound rounding_bound(ReduceOp op, int ranks) {
  const long double unit = std::ldexp(1.0L, -Format::mantissa - 1);
  const long double in_32_bits = std::ldexp(1.0L, -24);
  const long double delta = Format::mantissa < 23 ? (1 + unit) * (1 + in_32_bits) - 1 : unit;
  const long double wide_unit = std::ldexp(1.0L, -std::numeric_limits<Wide>::digits);
  const bool one_more = op == ReduceOp::avg || op == ReduceOp::pre_mul_sum;
  const long double operations = ranks - 1 + (one_more ? 1 : 0);
  const long double growth = std::expm1(operations * std::log1p(delta));
  RoundingBound bound;
  bound.relative = growth + std::expm1(operations * std::log1p(wide_unit));
  bound.absolute =
      operations * static_cast<long double>(Format::smallest_subnormal()) / 2 * (1 + growth);
  bound.overflow = static_cast<long double>(Format::largest()) / (1 + growth);
  return bound;
}

template <typename Wide>
struct Reference {
  Wide value[block_elements];      // the sum or the product
  Wide magnitude[block_elements];  // sum of |operand|, or product of max(1, |operand|)
};

template <typename Format, typename Wide>
void accumulate(const Recipe& recipe, int rank, std::uint64_t first, std::uint64_t size,
                Reference<Wide>& reference) {
  const std::uint64_t key = input_key(recipe.seed, rank);
  const bool product = recipe.op == ReduceOp::prod;
  Wide factor = 1;
  if (recipe.op == ReduceOp::pre_mul_sum)
    factor = Format::decode(static_cast<typename Format::Bits>(factor_bits(recipe.type, rank)));
  for (std::uint64_t i = 0; i < size; ++i) {
    const auto bits = float_input<Format>(recipe.op, input_bits(key, first + i));
    const Wide operand = factor * static_cast<Wide>(Format::decode(bits));
    const Wide magnitude = operand < 0 ? -operand : operand;
    if (rank == 0) {
      reference.value[i] = operand;
      reference.magnitude[i] = product ? std::max(Wide(1), magnitude) : magnitude;
    } else if (product) {
      reference.value[i] *= operand;
      reference.magnitude[i] *= std::max(Wide(1), magnitude);
    } else {
      reference.value[i] += operand;
      reference.magnitude[i] += magnitude;
    }
  }
}

template <typename Format, typename Wide>
CheckOutcome check_rounded(const Recipe& recipe, int ranks, std::uint64_t first,
                           std::uint64_t count, const void* output) {
  CheckOutcome outcome;
  const RoundingBound bound = rounding_bound<Format, Wide>(recipe.op, ranks);
  const auto relative = static_cast<Wide>(bound.relative);
  const auto absolute = static_cast<Wide>(bound.absolute);
  const auto overflow = static_cast<Wide>(bound.overflow);
  const bool product = recipe.op == ReduceOp::prod;
  const Wide divisor = recipe.op == ReduceOp::avg ? static_cast<Wide>(ranks) : Wide(1);
  Reference<Wide> reference;
  for (std::uint64_t begin = 0; begin < count; begin += block_elements) {
    const std::uint64_t size = std::min(block_elements, count - begin);
    for (int rank = 0; rank < ranks; ++rank)
      accumulate<Format>(recipe, rank, first + begin, size, reference);
    for (std::uint64_t i = 0; i < size; ++i) {
      const Wide want = reference.value[i] / divisor;
      const Wide magnitude = reference.magnitude[i];
      const Wide slack = product ? relative * std::abs(want) + absolute * magnitude
                                 : relative * magnitude / divisor + absolute;
      const double got = Format::decode(load<typename Format::Bits>(output, begin + i));
      if (std::abs(static_cast<Wide>(got) - want) <= slack) continue;  // false for a NaN
      if (magnitude > overflow && !std::isfinite(got)) continue;
      if (outcome.wrong++ == 0)
        outcome.first =
            fmt::format("element {} is {:.17g}, must be {:.17g} within {:.3g}", first + begin + i,
                        got, static_cast<double>(want), static_cast<double>(slack));
    }
  }
  return outcome;
}

}  // namespace

CheckOutcome check_reduction(const Recipe& recipe, int ranks, std::uint64_t first,
                             std::uint64_t count, const void* output) {
  const bool extreme = recipe.op == ReduceOp::min || recipe.op == ReduceOp::max;
  return visit_type(
      recipe.type,
      [&]<typename Format>() {
        if (extreme) return check_extremes<Format>(recipe, ranks, first, count, output);
        // The reference of a double needs more than a double.
        using Wide = std::conditional_t<Format::mantissa == 52, long double, double>;
        return check_rounded<Format, Wide>(recipe, ranks, first, count, output);
      },
      [&]<typename Integer>() {
        return check_integers<Integer>(recipe, ranks, first, count, output);
      });
}

CheckOutcome check_copy(const Recipe& recipe, int rank, std::uint64_t first, std::uint64_t count,
                        const void* output) {
  CheckOutcome outcome;
  const std::uint64_t size = element_bytes(recipe.type);
  std::vector<char> expected(block_elements * size);
  for (std::uint64_t begin = 0; begin < count; begin += block_elements) {
    const std::uint64_t elements = std::min(block_elements, count - begin);
    fill_inputs(recipe, rank, first + begin, elements, expected.data());
    const char* got = static_cast<const char*>(output) + begin * size;
    if (std::memcmp(got, expected.data(), elements * size) == 0) continue;
    for (std::uint64_t i = 0; i < elements; ++i) {
      if (std::memcmp(got + i * size, expected.data() + i * size, size) == 0) continue;
      if (outcome.wrong++ == 0)
        outcome.first = fmt::format("element {} is not rank {}'s input", first + begin + i, rank);
    }
  }
  return outcome;
}

std::uint64_t changed_bytes(const void* data, std::uint64_t bytes, unsigned char was) {
  const auto* begin = static_cast<const unsigned char*>(data);
  return bytes - static_cast<std::uint64_t>(std::count(begin, begin + bytes, was));
}

void write_guard(void* guard) {
  auto* bytes = static_cast<unsigned char*>(guard);
  for (std::uint64_t i = 0; i < guard_bytes; ++i)
    bytes[i] = static_cast<unsigned char>(mix_bits(i + 1));
}

std::uint64_t damaged_guard_bytes(const void* guard) {
  const auto* bytes = static_cast<const unsigned char*>(guard);
  std::uint64_t damaged = 0;
  for (std::uint64_t i = 0; i < guard_bytes; ++i)
    damaged += bytes[i] != static_cast<unsigned char>(mix_bits(i + 1));
  return damaged;
}

std::uint64_t fingerprint(const void* data, std::uint64_t bytes) {
  std::uint64_t hash = mix_bits(bytes + 1);
  std::uint64_t word = 0;
  const auto* from = static_cast<const char*>(data);
  for (; bytes >= sizeof word; bytes -= sizeof word, from += sizeof word) {
    std::memcpy(&word, from, sizeof word);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  word = 0;
  std::memcpy(&word, from, bytes);
  return mix_bits(hash ^ word);
}

}  // namespace gyre::bench
