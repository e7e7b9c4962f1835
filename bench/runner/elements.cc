// Elements: filling inputs, see elements.h.
#include "bench/runner/elements.h"

namespace gyre::bench {

void fill_inputs(const Recipe& recipe, int rank, std::uint64_t first, std::uint64_t count,
                 void* out) {
  const std::uint64_t key = input_key(recipe.seed, rank);
  auto* bytes = static_cast<char*>(out);
  const auto store = [&](auto make) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto value = make(input_bits(key, first + i));
      // The address may be unaligned (-u, and buffers at any offset).
      std::memcpy(bytes + i * sizeof value, &value, sizeof value);
    }
  };
  visit_type(
      recipe.type,
      [&]<typename Format>() {
        store([&](std::uint64_t random) { return float_input<Format>(recipe.op, random); });
      },
      [&]<typename Integer>() {
        store([&](std::uint64_t random) { return integer_input<Integer>(recipe.op, random); });
      });
}

std::uint64_t factor_bits(ElementType type, int rank) {
  const auto quarter = static_cast<std::uint64_t>(rank % 4);
  return visit_type(
      type,
      [&]<typename Format>() -> std::uint64_t {
        return Format::make(false, 0, quarter << (Format::mantissa - 2));
      },
      [&]<typename Integer>() -> std::uint64_t { return quarter + 1; });
}

}  // namespace gyre::bench
