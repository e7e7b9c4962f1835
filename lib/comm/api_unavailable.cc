// The C functions of gyre.h that this version does not carry out. They answer gyreInvalidUsage with
// a text that says so, and have no effect.
#include "lib/comm/calls.h"

#include <fmt/format.h>

namespace {

gyreResult_t unavailable(gyreComm_t comm, const char* function) {
  return gyre::comm::answer(
      comm, gyre::invalid_usage(
                fmt::format("{} is not available in version {}.{}.{}; the collectives are",
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
gyreResult_t gyreSend(const void*, size_t, gyreDataType_t, int, gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreSend");
}
gyreResult_t gyreRecv(void*, size_t, gyreDataType_t, int, gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreRecv");
}
gyreResult_t gyreSendTagged(const void*, size_t, gyreDataType_t, int, int, gyreComm_t comm,
                            gyreStream_t) {
  return unavailable(comm, "gyreSendTagged");
}
gyreResult_t gyreRecvTagged(void*, size_t, gyreDataType_t, int, int, int*, int*, gyreComm_t comm,
                            gyreStream_t) {
  return unavailable(comm, "gyreRecvTagged");
}
