// Wiped: bytes of a secret, overwritten when they are destroyed. It does not wipe copies that a
// caller or TLS keeps, and a core dump of a process that is still joining shows the bytes.
#pragma once

#include <openssl/crypto.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace gyre::trust {

template <std::size_t count>
struct Wiped {
  ~Wiped() { OPENSSL_cleanse(bytes.data(), count); }
  operator const std::array<std::uint8_t, count>&() const { return bytes; }

  static constexpr std::size_t size() { return count; }
  std::uint8_t* data() { return bytes.data(); }
  const std::uint8_t* data() const { return bytes.data(); }
  std::uint8_t* begin() { return bytes.data(); }
  std::uint8_t* end() { return bytes.data() + count; }
  const std::uint8_t* begin() const { return bytes.data(); }
  const std::uint8_t* end() const { return bytes.data() + count; }
  std::uint8_t& operator[](std::size_t place) { return bytes[place]; }
  const std::uint8_t& operator[](std::size_t place) const { return bytes[place]; }
  friend bool operator==(const Wiped& one, const Wiped& other) { return one.bytes == other.bytes; }

  std::array<std::uint8_t, count> bytes{};
};

// Of a container that is about to go.
template <typename Container>
void wipe(Container& container) {
  OPENSSL_cleanse(container.data(), container.size());
}

}  // namespace gyre::trust
