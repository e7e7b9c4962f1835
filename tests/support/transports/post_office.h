// Letters between the transports of all Sides of a test program, also of processes that it forks:
// what the control plane carries elsewhere. Receivers are rank 0 and senders are rank 1, as in
// transport_pair.h. Any thread.
#pragma once

#include "lib/transport/transport.h"

namespace gyre::tests {

transport::TransportLetters post_office();

}  // namespace gyre::tests
