// The bytes that gyre link sends, by which the receiver knows each of them: words of 64 bits, each
// one a step on from the one before. The seed says where they begin.
#pragma once

#include "tools/gyre/link_values.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre::tools {

void fill_pattern(std::span<std::byte> message, std::uint64_t seed);
// Counts what differs. `number`: the message's, for the first damage.
void check_pattern(std::span<const std::byte> message, std::uint64_t seed, std::uint64_t number,
                   LinkDamage& damage);

}  // namespace gyre::tools
