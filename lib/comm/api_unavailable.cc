// The C functions of gyre.h that this version does not carry out. They answer gyreInvalidUsage with
// a text that says so, and have no effect.
#include "lib/comm/calls.h"

#include <fmt/format.h>

namespace {

gyreResult_t unavailable(gyreComm_t comm, const char* function) {
  return gyre::comm::answer(comm, gyre::invalid_usage(fmt::format(
                                      "{} is not available in version {}.{}.{}; gyreAllReduce is",
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
gyreResult_t gyreReduce(const void*, void*, size_t, gyreDataType_t, gyreRedOp_t, int,
                        gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreReduce");
}
gyreResult_t gyreBroadcast(const void*, void*, size_t, gyreDataType_t, int, gyreComm_t comm,
                           gyreStream_t) {
  return unavailable(comm, "gyreBroadcast");
}
gyreResult_t gyreBcast(void*, size_t, gyreDataType_t, int, gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreBcast");
}
gyreResult_t gyreReduceScatter(const void*, void*, size_t, gyreDataType_t, gyreRedOp_t,
                               gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreReduceScatter");
}
gyreResult_t gyreAllGather(const void*, void*, size_t, gyreDataType_t, gyreComm_t comm,
                           gyreStream_t) {
  return unavailable(comm, "gyreAllGather");
}
gyreResult_t gyreAlltoAll(const void*, void*, size_t, gyreDataType_t, gyreComm_t comm,
                          gyreStream_t) {
  return unavailable(comm, "gyreAlltoAll");
}
gyreResult_t gyreGather(const void*, void*, size_t, gyreDataType_t, int, gyreComm_t comm,
                        gyreStream_t) {
  return unavailable(comm, "gyreGather");
}
gyreResult_t gyreScatter(const void*, void*, size_t, gyreDataType_t, int, gyreComm_t comm,
                         gyreStream_t) {
  return unavailable(comm, "gyreScatter");
}
gyreResult_t gyreAlltoAllv(const void*, const size_t*, const size_t*, void*, const size_t*,
                           const size_t*, gyreDataType_t, gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreAlltoAllv");
}
gyreResult_t gyreAllGatherv(const void*, size_t, void*, const size_t*, const size_t*,
                            gyreDataType_t, gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreAllGatherv");
}
gyreResult_t gyreReduceScatterv(const void*, void*, const size_t*, gyreDataType_t, gyreRedOp_t,
                                gyreComm_t comm, gyreStream_t) {
  return unavailable(comm, "gyreReduceScatterv");
}
gyreResult_t gyreBarrier(gyreComm_t comm, gyreStream_t) { return unavailable(comm, "gyreBarrier"); }
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
