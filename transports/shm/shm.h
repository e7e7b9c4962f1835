// shm: threads and processes of one host. The receiver makes the fifo's memory; a sender in its own
// process shares the pointer, one in another process gets a sealed memfd over the receiver's
// listener. Nothing has a name that another user could take, and nothing outlives a crash.
#pragma once

#include "lib/transport/transport.h"

#include <memory>

namespace gyre::transport {

std::unique_ptr<Transport> make_shm_transport(const TransportEnvironment& environment);

}  // namespace gyre::transport
