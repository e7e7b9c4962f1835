// Distinct integer types for room borders: a rank is not a count, a count is not a number of bytes.
// Arithmetic that could overflow is checked here once, so that nobody multiplies sizes by hand.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gyre {

// An integer that converts to nothing by itself. Tag keeps two quantities apart.
template <typename Tag, typename Value>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(Value value) : value_(value) {}
  constexpr Value value() const { return value_; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  Value value_{};
};

using Rank = Quantity<struct RankTag, std::int32_t>;     // place in a communicator, from 0
using Bytes = Quantity<struct BytesTag, std::uint64_t>;  // a length or an offset
using ChunkIndex = Quantity<struct ChunkIndexTag, std::uint32_t>;  // share of the data, from 0

// Nothing on overflow.
constexpr std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return (value + by - 1) / by;
}

}  // namespace gyre
