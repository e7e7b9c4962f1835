// Ends a training program that fails: the reason on stderr and exit code 1.
#pragma once

#include <gyre/gradsync.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace gyre::bench {

// At once, as other ranks of this process may be at work: they would use what exit() destroys.
[[noreturn]] inline void fail(const std::string& why) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::_Exit(1);
}
// Does it; what the standard library throws, such as for want of memory, ends the program too.
template <typename Act>
void do_or_fail(const Act& act) noexcept {
  try {
    act();
  } catch (const std::exception& error) {
    fail(error.what());
  }
}
// Of a function of gradsync.h; and of one of gyre.h.
inline void expect(gyreResult_t result) {
  if (result != gyreSuccess) fail(gyreGradGetLastError());
}
inline void expect(gyreResult_t result, gyreComm_t comm) {
  if (result != gyreSuccess) fail(gyreGetLastError(comm));
}

}  // namespace gyre::bench

namespace gyre::training {

using bench::do_or_fail;
using bench::expect;
using bench::fail;

}  // namespace gyre::training
