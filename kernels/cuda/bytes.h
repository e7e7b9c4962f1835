// Up to 16 bytes at any address, by the widest accesses that its alignment allows.
#pragma once

#include "kernels/cuda/device.h"

namespace gyre::cuda {

GYRE_DEVICE std::uint32_t misalignment(const void* place) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(place) & 15);
}

template <typename Word>
GYRE_DEVICE Word load_word(const std::byte* place) {
  if constexpr (sizeof(Word) == 8) return device::load_8(place);
  if constexpr (sizeof(Word) == 4) return device::load_4(place);
  if constexpr (sizeof(Word) == 2) return device::load_2(place);
  if constexpr (sizeof(Word) == 1) return device::load_1(place);
}

template <typename Word>
GYRE_DEVICE void store_word(std::byte* place, std::uint64_t value) {
  if constexpr (sizeof(Word) == 8) device::store_8(place, value);
  if constexpr (sizeof(Word) == 4) device::store_4(place, static_cast<Word>(value));
  if constexpr (sizeof(Word) == 2) device::store_2(place, static_cast<Word>(value));
  if constexpr (sizeof(Word) == 1) device::store_1(place, static_cast<Word>(value));
}

template <typename Word>
GYRE_DEVICE Bytes16 load_words(const std::byte* place, std::uint32_t bytes) {
  Bytes16 value{0, 0};
  GYRE_UNROLL
  for (std::uint32_t i = 0; i < 16; i += sizeof(Word)) {
    if (i >= bytes) continue;
    const std::uint64_t word = load_word<Word>(place + i);
    if (i < 8)
      value.low |= word << (8 * i);
    else
      value.high |= word << (8 * (i - 8));
  }
  return value;
}

template <typename Word>
GYRE_DEVICE void store_words(std::byte* place, const Bytes16& value, std::uint32_t bytes) {
  GYRE_UNROLL
  for (std::uint32_t i = 0; i < 16; i += sizeof(Word)) {
    if (i < bytes)
      store_word<Word>(place + i, i < 8 ? value.low >> (8 * i) : value.high >> (8 * (i - 8)));
  }
}

// Few or misaligned bytes: one piece of code for all that kernels do with them.
GYRE_OUTLINE Bytes16 load_odd_bytes(const std::byte* place, std::uint32_t bytes) {
  const std::uint32_t odd = misalignment(place) | bytes;
  if ((odd & 7) == 0) return load_words<std::uint64_t>(place, bytes);
  if ((odd & 3) == 0) return load_words<std::uint32_t>(place, bytes);
  if ((odd & 1) == 0) return load_words<std::uint16_t>(place, bytes);
  return load_words<std::uint8_t>(place, bytes);
}

GYRE_OUTLINE void store_odd_bytes(std::byte* place, Bytes16 value, std::uint32_t bytes) {
  const std::uint32_t odd = misalignment(place) | bytes;
  if ((odd & 7) == 0) return store_words<std::uint64_t>(place, value, bytes);
  if ((odd & 3) == 0) return store_words<std::uint32_t>(place, value, bytes);
  if ((odd & 1) == 0) return store_words<std::uint16_t>(place, value, bytes);
  store_words<std::uint8_t>(place, value, bytes);
}

GYRE_DEVICE Bytes16 load_bytes(const std::byte* place, std::uint32_t bytes) {
  const std::uint32_t odd = misalignment(place) | (bytes & 15);
  return odd == 0 ? device::load_16(place) : load_odd_bytes(place, bytes);
}

GYRE_DEVICE void store_bytes(std::byte* place, const Bytes16& value, std::uint32_t bytes) {
  const std::uint32_t odd = misalignment(place) | (bytes & 15);
  if (odd == 0) return device::store_16(place, value);
  store_odd_bytes(place, value, bytes);
}

}  // namespace gyre::cuda
