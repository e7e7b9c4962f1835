#include "tests/support/comm/elements.h"

namespace gyre::tests {
namespace {

std::uint64_t reduce_integers(ElementType type, ReduceOp op,
                              std::span<const std::byte* const> operands, double scale) {
  const bool negative_below = is_signed(type);
  const auto less = [&](std::uint64_t a, std::uint64_t b) {
    return negative_below ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
  };
  const auto factor = op == ReduceOp::pre_mul_sum
                          ? static_cast<std::uint64_t>(static_cast<std::int64_t>(scale))
                          : 1;
  std::uint64_t value = as_integer(type, operands[0]) * factor;
  for (const std::byte* operand : operands.subspan(1)) {
    const std::uint64_t next = as_integer(type, operand) * factor;
    switch (op) {
      case ReduceOp::prod:
        value *= next;
        break;
      case ReduceOp::max:
        value = less(value, next) ? next : value;
        break;
      case ReduceOp::min:
        value = less(next, value) ? next : value;
        break;
      case ReduceOp::band:
        value &= next;
        break;
      case ReduceOp::bor:
        value |= next;
        break;
      case ReduceOp::bxor:
        value ^= next;
        break;
      default:
        value += next;
        break;
    }
  }
  // Wrapped to the type before the division, as the contract says.
  std::byte wrapped[8];
  std::memcpy(wrapped, &value, sizeof value);
  value = as_integer(type, wrapped);
  if (op != ReduceOp::avg) return value;
  if (!negative_below) return value / operands.size();
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value) /
                                    static_cast<std::int64_t>(operands.size()));
}

}  // namespace

bool is_reduction(ElementType type, ReduceOp op, std::span<const std::byte* const> operands,
                  double scale, const std::byte* got) {
  if (!is_float(type)) {
    const std::uint64_t wanted = reduce_integers(type, op, operands, scale);
    return std::memcmp(got, &wanted, element_bytes(type)) == 0;
  }
  const double n = static_cast<double>(operands.size());
  double sum = 0, sizes = 0, product = 1, most = -INFINITY, least = INFINITY;
  for (const std::byte* operand : operands) {
    const double x = as_double(type, operand) * (op == ReduceOp::pre_mul_sum ? scale : 1);
    sum += x;
    sizes += std::fabs(x);
    product *= x;
    most = std::fmax(most, x);
    least = std::fmin(least, x);
  }
  const double value = as_double(type, got), u = unit_roundoff(type);
  switch (op) {
    case ReduceOp::prod:
      return std::fabs(value - product) <= 2 * n * u * std::fabs(product);
    case ReduceOp::max:
      return value == most;
    case ReduceOp::min:
      return value == least;
    case ReduceOp::avg:
      return std::fabs(value - sum / n) <= (n + 2) * u * sizes / n;
    default:
      return std::fabs(value - sum) <= (n + 2) * u * sizes;
  }
}

}  // namespace gyre::tests
