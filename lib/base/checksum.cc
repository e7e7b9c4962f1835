#include "lib/base/checksum.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace gyre {
namespace {

constexpr std::uint32_t reflected_polynomial = 0x82F63B78;
using ByteTable = std::array<std::uint32_t, 256>;

constexpr ByteTable make_byte_table() {
  ByteTable table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit)
      table[byte] = table[byte] >> 1 ^ ((table[byte] & 1) != 0 ? reflected_polynomial : 0);
  }
  return table;
}
constexpr ByteTable byte_table = make_byte_table();

constexpr std::uint32_t add_byte(std::uint32_t crc, std::uint32_t byte) {
  return crc >> 8 ^ byte_table[(crc ^ byte) & 0xFF];
}

// A word is added in three cycles, but one can begin in each: so lanes of a block are added side by
// side, and put together afterwards.
constexpr std::size_t lane_bytes = 1024;
constexpr std::size_t block_bytes = 4 * lane_bytes;
constexpr std::size_t word_bytes = sizeof(std::uint64_t);

// What becomes of a CRC by as many bytes of zeros as a lane has: of each of its four bytes.
using LaneShift = std::array<ByteTable, 4>;
constexpr LaneShift make_lane_shift() {
  LaneShift shift{};
  for (std::size_t place = 0; place < shift.size(); ++place)
    for (std::uint32_t bit = 1; bit < 256; bit *= 2) {
      std::uint32_t crc = bit << 8 * place;
      for (std::size_t i = 0; i < lane_bytes; ++i) crc = add_byte(crc, 0);
      // It is linear: any other byte is made of those below its highest bit, and that bit.
      for (std::uint32_t below = 0; below < bit; ++below)
        shift[place][bit | below] = crc ^ shift[place][below];
    }
  return shift;
}
constexpr LaneShift lane_shift = make_lane_shift();

std::uint32_t shift_lane(std::uint32_t crc) {
  return lane_shift[0][crc & 0xFF] ^ lane_shift[1][crc >> 8 & 0xFF] ^
         lane_shift[2][crc >> 16 & 0xFF] ^ lane_shift[3][crc >> 24];
}

std::uint32_t add_by_table(std::uint32_t crc, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) crc = add_byte(crc, std::to_integer<std::uint32_t>(byte));
  return crc;
}

// By the processor's instruction for a word.
#if defined(__x86_64__)
#define GYRE_CRC_TARGET __attribute__((target("sse4.2")))
bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
GYRE_CRC_TARGET inline std::uint32_t add_word(std::uint32_t crc, std::uint64_t word) {
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, word));
}
#elif defined(__aarch64__)
#define GYRE_CRC_TARGET __attribute__((target("+crc")))
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
GYRE_CRC_TARGET inline std::uint32_t add_word(std::uint32_t crc, std::uint64_t word) {
  return __crc32cd(crc, word);
}
#endif

#ifdef GYRE_CRC_TARGET
inline std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

GYRE_CRC_TARGET std::uint32_t add_block(std::uint32_t crc, const std::byte* bytes) {
  std::uint32_t second = 0, third = 0, fourth = 0;
  for (const std::byte* const end = bytes + lane_bytes; bytes != end; bytes += word_bytes) {
    crc = add_word(crc, word_at(bytes));
    second = add_word(second, word_at(bytes + lane_bytes));
    third = add_word(third, word_at(bytes + 2 * lane_bytes));
    fourth = add_word(fourth, word_at(bytes + 3 * lane_bytes));
  }
  return shift_lane(shift_lane(shift_lane(crc) ^ second) ^ third) ^ fourth;
}

GYRE_CRC_TARGET std::uint32_t add_by_instruction(std::uint32_t crc,
                                                 std::span<const std::byte> bytes) {
  for (; bytes.size() >= block_bytes; bytes = bytes.subspan(block_bytes))
    crc = add_block(crc, bytes.data());
  for (; bytes.size() >= word_bytes; bytes = bytes.subspan(word_bytes))
    crc = add_word(crc, word_at(bytes.data()));
  return add_by_table(crc, bytes);
}
#endif

}  // namespace

void Checksum::add(std::span<const std::byte> bytes) {
#ifdef GYRE_CRC_TARGET
  static const bool by_instruction = has_instruction();
  crc_ = by_instruction ? add_by_instruction(crc_, bytes) : add_by_table(crc_, bytes);
#else
  crc_ = add_by_table(crc_, bytes);
#endif
}

}  // namespace gyre
