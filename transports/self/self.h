// self: a rank's links with itself. A plan uses them to put its lanes in order; their messages are
// mostly tokens of zero bytes. It is the smallest transport: read it first, the others have the
// same structure.
#pragma once

#include "lib/transport/transport.h"

#include <memory>

namespace gyre::transport {

std::unique_ptr<Transport> make_self_transport(const TransportEnvironment& environment);

}  // namespace gyre::transport
