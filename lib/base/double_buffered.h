// DoubleBuffered<T>: a value that one thread writes and anybody reads, also from another process.
// It has two copies, and an index of the one that is whole. So a reader gets a whole value even if
// the writer was stopped in the middle of a write. `SharedWords` is one copy in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace gyre {

using SharedWord = std::atomic<std::uint64_t>;
static_assert(SharedWord::is_always_lock_free, "it works across processes");

// A trivially copyable value in shared memory. Alone it may be read torn.
template <typename T>
class SharedWords {
 public:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);

  // Each word is a release: whoever sees it sees what the writer did before, too.
  void store(const T& value) {
    const auto plain = std::bit_cast<Plain>(value);
    for (std::size_t i = 0; i < count; ++i) words_[i].store(plain[i], std::memory_order_release);
  }
  // Pairs with the releases in store.
  T load() const {
    Plain plain;
    for (std::size_t i = 0; i < count; ++i) plain[i] = words_[i].load(std::memory_order_acquire);
    return std::bit_cast<T>(plain);
  }

 private:
  static constexpr std::size_t count = sizeof(T) / sizeof(std::uint64_t);
  using Plain = std::array<std::uint64_t, count>;
  std::array<SharedWord, count> words_;
};

template <typename T>
class DoubleBuffered {
 public:
  // One thread at a time.
  void write(const T& value) {
    const std::uint64_t next = index_.load(std::memory_order_relaxed) + 1;
    copies_[next % 2].store(value);
    // Pairs with the acquire in read.
    index_.store(next, std::memory_order_release);
  }

  // Nothing if a writer was faster every time. A stopped writer never is: the copy that the index
  // names is not touched before the index has moved on.
  // The index does not turn: a write a nanosecond takes 584 years.
  std::optional<T> read() const {
    for (int attempt = 0; attempt < attempts; ++attempt) {
      const std::uint64_t index = index_.load(std::memory_order_acquire);
      const T value = copies_[index % 2].load();
      // A word of the next value but one is seen only together with the index of the next.
      if (index_.load(std::memory_order_relaxed) == index) return value;
    }
    return std::nullopt;
  }

  // How often it was written.
  std::uint64_t writes() const { return index_.load(std::memory_order_relaxed); }

 private:
  static constexpr int attempts = 1000;
  SharedWord index_;
  SharedWords<T> copies_[2];
};

}  // namespace gyre
