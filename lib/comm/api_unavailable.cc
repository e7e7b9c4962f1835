// The C functions of gyre.h that this version does not carry out. They answer gyreInvalidUsage with
// a text that says so, and have no effect.
#include "lib/comm/calls.h"

#include <fmt/format.h>

namespace {

gyreResult_t unavailable(gyreComm_t comm, const char* function) {
  return gyre::comm::answer(comm, gyre::invalid_usage(fmt::format(
                                      "{} is not available in version {}.{}.{}; see CHANGELOG.md",
                                      function, GYRE_MAJOR, GYRE_MINOR, GYRE_PATCH)));
}

}  // namespace

gyreResult_t gyreCommSplit(gyreComm_t comm, int, int, gyreComm_t*, gyreConfig_t*) {
  return unavailable(comm, "gyreCommSplit");
}
gyreResult_t gyreCommRegister(gyreComm_t comm, void*, size_t, void**) {
  return unavailable(comm, "gyreCommRegister");
}
gyreResult_t gyreCommDeregister(gyreComm_t comm, void*) {
  return unavailable(comm, "gyreCommDeregister");
}
