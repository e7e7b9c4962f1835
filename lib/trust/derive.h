// Derives secrets from a secret, and writes a hash for people.
#pragma once

#include "lib/base/status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gyre::trust {

// HKDF-SHA256 of a secret under a label.
Status derive(std::span<const std::uint8_t> secret, std::string_view label,
              std::span<std::uint8_t> output);
std::string hexadecimal(std::span<const std::uint8_t> bytes);

}  // namespace gyre::trust
