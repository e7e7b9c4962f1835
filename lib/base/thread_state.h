// A value for each thread. Handlers of atexit() run after their thread's variables have been
// destroyed. They may still use the value: they get a new one, which is never destroyed.
#pragma once

#include <utility>

namespace gyre {

template <typename T>
T& thread_state() {
  // Found without a call of the loader: eight bytes of the static block fit a library that is
  // opened late, too.
  [[gnu::tls_model("initial-exec")]] static thread_local T* known = nullptr;
  if (known != nullptr) [[likely]]
    return *known;
  struct AtThreadEnd {
    ~AtThreadEnd() { delete std::exchange(known, nullptr); }
  };
  known = new T;
  static thread_local const AtThreadEnd end;
  return *known;
}

}  // namespace gyre
