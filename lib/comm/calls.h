// What every C function shares: looking handles up, remembering errors, turning Status into a code.
#pragma once

#include "lib/comm/group.h"
#include <gyre/gyre.h>

namespace gyre::comm {

inline gyreResult_t to_result(const Status& status) {
  return static_cast<gyreResult_t>(status.code());
}

// Keeps the text for gyreGetLastError and returns the code.
gyreResult_t answer(Status status);
gyreResult_t answer(Communicator& communicator, Status status);

Result<HandleTable<Communicator>::Pin> find_communicator(gyreComm_t comm);
Result<HandleTable<HostStream>::Pin> find_stream(gyreStream_t stream);

// Runs `body` (returning Status) for a C function; nothing thrown gets past it.
template <typename Body>
gyreResult_t guarded(Body&& body) {
  try {
    return answer(body());
  } catch (const std::bad_alloc&) {
    return answer(Status(Code::SystemError, "out of memory"));
  } catch (const std::exception& error) {
    return answer(internal_error(error.what()));
  }
}

}  // namespace gyre::comm
