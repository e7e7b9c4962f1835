// lib/base/checksum.h: the same value for every way to add the bytes, and another one for every
// changed bit.
#include "lib/base/checksum.h"

#include "tests/support/catch.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace checksum_test {

using namespace gyre;

namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::uint32_t sum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

// By the definition in RFC 3720, bit by bit.
std::uint32_t defined_sum(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 == 1 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("a checksum is CRC-32C", "[checksum]") {
  const char digits[] = "123456789";
  CHECK(sum_of(std::as_bytes(std::span(digits).first(9))) == 0xE3069283);  // CRC-32/ISCSI
  for (std::size_t count = 0; count < 200; ++count) {
    const Bytes bytes = random_bytes(count, count);
    REQUIRE(sum_of(bytes) == defined_sum(bytes));
  }
  const Bytes many = random_bytes(100'003, 1);
  CHECK(sum_of(many) == defined_sum(many));
}

TEST_CASE("a checksum is the same in whatever parts the bytes come", "[checksum]") {
  const Bytes bytes = random_bytes(30'000, 7);
  const std::uint32_t expected = sum_of(bytes);
  std::mt19937_64 random(GENERATE(range(1, 20)));
  Checksum sum;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t part = std::min<std::size_t>(random() % 7000, bytes.size() - at);
    sum.add(std::span(bytes).subspan(at, part));
    at += part;
  }
  CHECK(sum.value() == expected);
}

TEST_CASE("one changed bit, two exchanged words, and one byte more or less are noticed",
          "[checksum]") {
  Bytes bytes = random_bytes(150, 3);
  std::set<std::uint32_t> seen = {sum_of(bytes)};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    REQUIRE(seen.insert(sum_of(bytes)).second);
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
  for (std::size_t word = 0; word + 16 <= bytes.size(); word += 8) {
    std::swap_ranges(bytes.begin() + static_cast<long>(word),
                     bytes.begin() + static_cast<long>(word) + 8,
                     bytes.begin() + static_cast<long>(word) + 8);
    REQUIRE(seen.insert(sum_of(bytes)).second);
  }
  bytes.push_back({});
  CHECK(seen.insert(sum_of(bytes)).second);
  bytes.resize(bytes.size() - 2);
  CHECK(seen.insert(sum_of(bytes)).second);
}

}  // namespace checksum_test
