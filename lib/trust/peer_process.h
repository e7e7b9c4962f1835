// The process at the other end of a local socket, by the kernel's word. A process id that a peer
// names may be another process's here: where one of the two has a PID namespace of its own.
#pragma once

#include "lib/base/owned.h"

namespace gyre::trust {

// A descriptor that becomes readable when that process ends, though it may lie in a PID namespace
// that cannot be seen here (Linux 6.5). At the end that connected, it is the process that listens.
// Empty if the kernel does not tell.
FileDescriptor open_peer_process(int socket);

}  // namespace gyre::trust
