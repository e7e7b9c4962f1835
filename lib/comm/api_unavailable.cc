// The C functions of gyre.h that this version does not carry out. They answer gyreInvalidUsage with
// a text that says so, and have no effect.
#include "lib/comm/calls.h"

#include <fmt/format.h>

namespace {

gyreResult_t unavailable(const char* function) {
  return gyre::comm::answer(
      gyre::invalid_usage(fmt::format("{} is not available in version {}.{}.{}; gyreAllReduce is",
                                      function, GYRE_MAJOR, GYRE_MINOR, GYRE_PATCH)));
}

}  // namespace

gyreResult_t gyreCommSplit(gyreComm_t, int, int, gyreComm_t*, gyreConfig_t*) {
  return unavailable("gyreCommSplit");
}
gyreResult_t gyreCommRegister(gyreComm_t, void*, size_t, void**) {
  return unavailable("gyreCommRegister");
}
gyreResult_t gyreCommDeregister(gyreComm_t, void*) { return unavailable("gyreCommDeregister"); }
gyreResult_t gyreReduce(const void*, void*, size_t, gyreDataType_t, gyreRedOp_t, int, gyreComm_t,
                        gyreStream_t) {
  return unavailable("gyreReduce");
}
gyreResult_t gyreBroadcast(const void*, void*, size_t, gyreDataType_t, int, gyreComm_t,
                           gyreStream_t) {
  return unavailable("gyreBroadcast");
}
gyreResult_t gyreBcast(void*, size_t, gyreDataType_t, int, gyreComm_t, gyreStream_t) {
  return unavailable("gyreBcast");
}
gyreResult_t gyreReduceScatter(const void*, void*, size_t, gyreDataType_t, gyreRedOp_t, gyreComm_t,
                               gyreStream_t) {
  return unavailable("gyreReduceScatter");
}
gyreResult_t gyreAllGather(const void*, void*, size_t, gyreDataType_t, gyreComm_t, gyreStream_t) {
  return unavailable("gyreAllGather");
}
gyreResult_t gyreAlltoAll(const void*, void*, size_t, gyreDataType_t, gyreComm_t, gyreStream_t) {
  return unavailable("gyreAlltoAll");
}
gyreResult_t gyreGather(const void*, void*, size_t, gyreDataType_t, int, gyreComm_t, gyreStream_t) {
  return unavailable("gyreGather");
}
gyreResult_t gyreScatter(const void*, void*, size_t, gyreDataType_t, int, gyreComm_t,
                         gyreStream_t) {
  return unavailable("gyreScatter");
}
gyreResult_t gyreAlltoAllv(const void*, const size_t*, const size_t*, void*, const size_t*,
                           const size_t*, gyreDataType_t, gyreComm_t, gyreStream_t) {
  return unavailable("gyreAlltoAllv");
}
gyreResult_t gyreAllGatherv(const void*, size_t, void*, const size_t*, const size_t*,
                            gyreDataType_t, gyreComm_t, gyreStream_t) {
  return unavailable("gyreAllGatherv");
}
gyreResult_t gyreReduceScatterv(const void*, void*, const size_t*, gyreDataType_t, gyreRedOp_t,
                                gyreComm_t, gyreStream_t) {
  return unavailable("gyreReduceScatterv");
}
gyreResult_t gyreBarrier(gyreComm_t, gyreStream_t) { return unavailable("gyreBarrier"); }
gyreResult_t gyreSend(const void*, size_t, gyreDataType_t, int, gyreComm_t, gyreStream_t) {
  return unavailable("gyreSend");
}
gyreResult_t gyreRecv(void*, size_t, gyreDataType_t, int, gyreComm_t, gyreStream_t) {
  return unavailable("gyreRecv");
}
gyreResult_t gyreSendTagged(const void*, size_t, gyreDataType_t, int, int, gyreComm_t,
                            gyreStream_t) {
  return unavailable("gyreSendTagged");
}
gyreResult_t gyreRecvTagged(void*, size_t, gyreDataType_t, int, int, int*, int*, gyreComm_t,
                            gyreStream_t) {
  return unavailable("gyreRecvTagged");
}
