// Allocations that fail when a test says so: the k-th of a thread, or all. It replaces operator
// new, so one file of a program includes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <new>

namespace gyre::tests {

// Of this thread: how many allocations are left until one fails; 0: none does.
inline thread_local int until_failure = 0;
inline thread_local bool all_fail = false;
// Of this thread: the largest one since a test set it to 0, in bytes.
inline thread_local std::size_t largest_allocation = 0;
// What goes on before it throws.
inline std::function<void()> before_failure = [] {};

inline void fail_if_due() {
  if (!all_fail && (until_failure == 0 || --until_failure > 0)) return;
  before_failure();
  throw std::bad_alloc();
}

inline void* allocate(std::size_t bytes) {
  fail_if_due();
  largest_allocation = std::max(largest_allocation, bytes);
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

inline void* allocate(std::size_t bytes, std::size_t alignment) {
  fail_if_due();
  largest_allocation = std::max(largest_allocation, bytes);
  void* const memory =
      std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace gyre::tests

void* operator new(std::size_t bytes) { return gyre::tests::allocate(bytes); }
void* operator new[](std::size_t bytes) { return gyre::tests::allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return gyre::tests::allocate(bytes, static_cast<std::size_t>(alignment));
}
// std::stable_sort's, which goes on without a buffer.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return gyre::tests::allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
