// Memory of one fifo that two processes share: made by the receiver, handed over as a descriptor,
// checked and mapped by the sender. Never found by a name.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/transport/mapped.h"

#include <memory>

namespace gyre::transport {

struct SharedFifo {
  std::shared_ptr<FifoMemory> memory;
  FileDescriptor descriptor;  // to be handed over, then closed
  bool sealed = false;        // its size can never change: no peer can cut it off
};

// A sealed memfd; where that is denied, a file of /dev/shm that never has a name.
// Pages lie on the NUMA node of the calling thread, whichever end touches them first.
Result<SharedFifo> make_shared_fifo(const FifoShape& shape);

// Whether this process may make no memfd, so that memory of its peers may have to do without seals.
bool memfd_is_denied();

// Address space for a fifo whose memory will arrive later, so that its view never moves.
Result<std::shared_ptr<FifoMemory>> reserve_fifo(const FifoShape& shape);
// Puts received memory there, if it is what a receiver of this shape makes; sealed, or as it is.
Status map_received_fifo(const FileDescriptor& descriptor, bool sealed, FifoMemory& reserved);

}  // namespace gyre::transport
