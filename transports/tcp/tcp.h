// tcp: between hosts, and between processes that share no memory. In clear, both directions of a
// channel share one socket (shared_socket.h); under TLS each direction has its own. Each end has a
// private fifo of the same shape. The executor commits into the sender's fifo, and `progress` ships
// it. The receiver's `progress` reads each message into a free slot of its own. A full fifo stops
// reading: the kernel's window is the credit.
#pragma once

#include "lib/transport/transport.h"

#include <memory>

namespace gyre::transport {

std::unique_ptr<Transport> make_tcp_transport(const TransportEnvironment& environment);

}  // namespace gyre::transport
