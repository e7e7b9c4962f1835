// Memory that other processes may read and write at the same time, by words of up to 8 bytes, each
// of which arrives whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gyre::tests {

inline bool is_aligned(const std::byte* place, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(place) % bytes == 0;
}

template <typename T>
void copy_word(std::byte* to, const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);  // the one side is the machine's own
  __atomic_store(reinterpret_cast<T*>(to), &value, __ATOMIC_RELAXED);
}

inline void read_words(std::byte* to, const std::byte* place, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t left = bytes - at;
    const auto take = [&]<typename T>(T) {
      T value;
      __atomic_load(reinterpret_cast<const T*>(place + at), &value, __ATOMIC_RELAXED);
      std::memcpy(to + at, &value, sizeof value);
      at += sizeof value;
    };
    if (left >= 8 && is_aligned(place + at, 8))
      take(std::uint64_t{});
    else if (left >= 4 && is_aligned(place + at, 4))
      take(std::uint32_t{});
    else
      take(std::uint8_t{});
  }
}

inline void write_words(std::byte* place, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t left = bytes - at;
    if (left >= 8 && is_aligned(place + at, 8)) {
      copy_word<std::uint64_t>(place + at, from + at);
      at += 8;
    } else if (left >= 4 && is_aligned(place + at, 4)) {
      copy_word<std::uint32_t>(place + at, from + at);
      at += 4;
    } else {
      copy_word<std::uint8_t>(place + at, from + at);
      at += 1;
    }
  }
}

}  // namespace gyre::tests
