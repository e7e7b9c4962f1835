// The start of the examples in C++, and their reaction to a failed call: they print the reason and
// exit. Then `gyre run` ends the other ranks.
#pragma once

#include <gyre/gradsync.h>

#include <cstdio>
#include <cstdlib>

namespace example {

inline void check(gyreResult_t result) {
  if (result == gyreSuccess) return;
  std::fprintf(stderr, "%s; %s\n", gyreGetLastError(nullptr), gyreGradGetLastError());
  std::exit(1);
}

// All ranks that were started together. Buffers are in host memory, whether there is a GPU or not.
inline gyreComm_t join_job() {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  gyreComm_t comm = nullptr;
  check(gyreCommInitEnv(&comm, &config));
  return comm;
}

}  // namespace example
