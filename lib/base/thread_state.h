// A value for each thread. Handlers of atexit() run after their thread's variables have been
// destroyed. They may still use the value: they get a new one, which is never destroyed.
#pragma once

#include <cstdint>
#include <pthread.h>
#include <utility>

namespace gyre {

// Found without a call of the loader: eight bytes of the static block fit a library that is opened
// late, too.
template <typename T>
struct ThreadStatePlace {
  [[gnu::tls_model("initial-exec")]] static constinit inline thread_local T* known = nullptr;
};

template <typename T>
[[gnu::noinline]] T& make_thread_state() {
  struct AtThreadEnd {
    ~AtThreadEnd() { delete std::exchange(ThreadStatePlace<T>::known, nullptr); }
  };
  ThreadStatePlace<T>::known = new T;
  static thread_local const AtThreadEnd end;
  return *ThreadStatePlace<T>::known;
}

template <typename T>
T& thread_state() {
  T* const known = ThreadStatePlace<T>::known;
  return known != nullptr ? *known : make_thread_state<T>();
}
// Null if the thread has none yet.
template <typename T>
T* known_thread_state() noexcept {
  return ThreadStatePlace<T>::known;
}

// What no other thread that lives has.
inline std::uintptr_t thread_mark() noexcept {
#if defined(__GNUC__) && !defined(__clang__)
  return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
#else
  return static_cast<std::uintptr_t>(pthread_self());
#endif
}

}  // namespace gyre
