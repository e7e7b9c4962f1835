// How much slower than usual a program runs that a sanitizer watches: for limits of time that only
// tell a hang from progress.
#pragma once

namespace gyre::tests {

#if defined(__SANITIZE_THREAD__)
inline constexpr int slowness = 16;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int slowness = 4;
#else
inline constexpr int slowness = 1;
#endif

}  // namespace gyre::tests
