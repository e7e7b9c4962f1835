// ucx: by UCX, whatever it finds between two ranks: InfiniBand, RoCE, shared memory, TCP. libucp is
// loaded if GYRE_TRANSPORT names `ucx`, and not otherwise: UCX changes the process that loads it
// (docs/decisions/36).
//
// All connections of a communicator use one worker of UCX (UcpEngine), and one connection of UCX
// for each peer. Each end has a private fifo of the same shape. The wire, in active messages:
//
//   joining   The receiver's endpoint has the address of its worker, the number of the link and a
//             one-time ticket. It travels over the encrypted control plane. The sender connects and
//             says hello, with the ticket, its own address and number. The receiver connects, too,
//             and sends its first credit. A receiver that ends before sends a letter.
//   message   A notice of 40 bytes and the slot's bytes. Where UCX copies all the same (by TCP or
//             shared memory), a message leaves in parts of one packet each, which are copied to the
//             slot. By other ways it leaves whole; UCX may promise what is longer than 8 KiB, and
//             the receiver fetches it into the slot.
//   lending   A sending end reads what a caller of gyreSend lends, in place of its slot.
//   credit    The receiver's head. It is sent when half of the window is free, or when the sender
//             asks for it because it cannot go on.
//   sweep     UCX calls a message of up to 8 KiB sent that is still in its own buffer, if the
//             kernel has no room. Whatever comes next shows that it has left: UCX takes that only
//             then. After 64 KiB of short messages a notice does.
//   the line  Between hosts a sender also dials the listener of the receiver's process by TCP, and
//             shows the ticket there. Nothing is sent on it: see host_line.h.
//   the end   Either end sends a closing notice. The engine closes its connections with the last
//             connection of Gyre, and waits until UCX has sent what it has.
//
// Notices name a link by a random number of 64 bits, which only both ends know. Notices with
// other numbers are dropped. Nothing else is authenticated or encrypted: the fabric is trusted, as
// docs/security.md says. Where the user asks for encryption (GYRE_TCP_SECURITY=tls), ucx reaches
// nobody.
#pragma once

#include "lib/transport/transport.h"

#include <memory>

namespace gyre::transport {

std::unique_ptr<Transport> make_ucx_transport(const TransportEnvironment& environment);

}  // namespace gyre::transport
