#include "tools/gyre/link_pattern.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace gyre::tools {
namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::size_t block_words = 512;  // compared before anybody asks what differs
// The golden ratio's bits, odd: the words of a message all differ, and every bit changes often.
constexpr std::uint64_t stride = 0x9e3779b97f4a7c15ULL;

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): near seeds begin far apart.
constexpr std::uint64_t first_word(std::uint64_t seed) {
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebULL;
  return seed ^ (seed >> 31);
}

void note_difference(std::uint8_t sent, std::uint8_t received, std::uint64_t number,
                     std::uint64_t offset, LinkDamage& damage) {
  if (damage.bytes == 0) {
    damage.first_message = number;
    damage.first_offset = offset;
    damage.sent = sent;
    damage.received = received;
  }
  ++damage.bytes;
  damage.bits += static_cast<std::uint64_t>(std::popcount(static_cast<unsigned>(sent ^ received)));
}

}  // namespace

void fill_pattern(std::span<std::byte> message, std::uint64_t seed) {
  std::uint64_t word = first_word(seed);
  std::size_t at = 0;
  for (; at + word_bytes <= message.size(); at += word_bytes, word += stride)
    std::memcpy(message.data() + at, &word, word_bytes);
  if (at < message.size()) std::memcpy(message.data() + at, &word, message.size() - at);
}

void check_pattern(std::span<const std::byte> message, std::uint64_t seed, std::uint64_t number,
                   LinkDamage& damage) {
  const std::uint64_t bytes_before = damage.bytes;
  std::array<std::byte, block_words * word_bytes> right;
  std::uint64_t word = first_word(seed);
  for (std::size_t at = 0; at < message.size(); at += right.size()) {
    for (std::size_t i = 0; i < block_words; ++i, word += stride)
      std::memcpy(right.data() + i * word_bytes, &word, word_bytes);
    const std::size_t bytes = std::min(right.size(), message.size() - at);
    if (std::memcmp(right.data(), message.data() + at, bytes) == 0) continue;
    for (std::size_t i = 0; i < bytes; ++i)
      if (right[i] != message[at + i])
        note_difference(std::to_integer<std::uint8_t>(right[i]),
                        std::to_integer<std::uint8_t>(message[at + i]), number, at + i, damage);
  }
  if (damage.bytes > bytes_before) ++damage.messages;
}

}  // namespace gyre::tools
