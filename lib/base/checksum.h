// CRC-32C (polynomial 0x1EDC6F41, RFC 3720): tells whether bytes were changed on their way by
// hardware that fails. It is no protection against an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre {

class Checksum {
 public:
  // Bytes may come in parts of any size.
  void add(std::span<const std::byte> bytes);
  std::uint32_t value() const { return ~crc_; }

 private:
  std::uint32_t crc_ = ~0U;
};

}  // namespace gyre
