// The rounding and subnormal settings under which a float reduction runs: round to nearest even, no
// flush to zero, no traps. The calling thread may have other settings (a library linked with
// -ffast-math sets flush-to-zero at load). Then its rank alone would get other bits.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace gyre::kernels {
namespace {

#if defined(__SSE__)
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(_mm_getcsr()) {
    if (differs()) _mm_setcsr(default_control);
  }
  ~FloatEnvironment() {
    if (differs()) _mm_setcsr(saved_);
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;
  // The calling thread has these settings.
  static bool is_usual() { return is_default(_mm_getcsr()); }

 private:
  // Intel SDM vol. 1, 10.2.3: bits 0-5 are sticky flags, the rest control; 0x1f80 after reset.
  static constexpr unsigned default_control = 0x1f80;
  static constexpr unsigned sticky_flags = 0x3f;
  static bool is_default(unsigned control) { return (control & ~sticky_flags) == default_control; }
  bool differs() const { return !is_default(saved_); }
  const unsigned saved_;
};
#else
class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;
  // To look costs as much as to set them.
  static bool is_usual() { return false; }

 private:
  std::fenv_t saved_;
};
#endif

// `body` under these settings. It must be a real call, or its arithmetic could be moved out of
// them.
template <auto body, typename... Arguments>
void with_float_environment(const Arguments&... arguments) {
  const FloatEnvironment environment;
  body(arguments...);
}

}  // namespace
}  // namespace gyre::kernels
