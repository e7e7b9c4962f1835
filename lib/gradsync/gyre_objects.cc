#include "lib/gradsync/gyre_objects.h"

namespace gyre::gradsync {

Status checked(gyreResult_t result, gyreComm_t comm) {
  if (result == gyreSuccess) return {};
  return Status(static_cast<Code>(result), gyreGetLastError(comm));
}

bool is_local(const Status& failure) {
  const Code code = failure.code();
  return code != Code::RemoteError && code != Code::Timeout && code != Code::Mismatch &&
         code != Code::Aborted;
}

Result<SharedMemory> allocate(std::uint64_t bytes) {
  void* memory = nullptr;
  GYRE_TRY(checked(gyreMemAllocOn(&memory, bytes, GYRE_DEVICE_HOST)));
  return SharedMemory(memory);
}

Result<OwnedCommunicator> split_off(gyreComm_t comm, int color, const char* name, int timeout_ms) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.commName = name;
  config.timeoutMs = timeout_ms;
  config.blocking = 1;
  gyreComm_t made = nullptr;
  GYRE_TRY(checked(gyreCommSplit(comm, color, rank_of(comm), &made, &config), comm));
  return OwnedCommunicator(made);
}

Result<OwnedStream> make_stream() {
  gyreStream_t stream = nullptr;
  GYRE_TRY(checked(gyreStreamCreate(&stream)));
  return OwnedStream(stream);
}

int size_of(gyreComm_t comm) {
  int size = 0;
  gyreCommCount(comm, &size);
  return size;
}

int rank_of(gyreComm_t comm) {
  int rank = 0;
  gyreCommUserRank(comm, &rank);
  return rank;
}

}  // namespace gyre::gradsync
