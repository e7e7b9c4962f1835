// ConnectMessage: how the receiving end of a link tells the sending end how to connect. Only the
// transport checks the endpoint in it.
#pragma once

#include "lib/control/control.h"
#include "lib/transport/region.h"
#include "lib/transport/transport.h"

#include <cstdint>
#include <optional>

namespace gyre::comm {

struct ConnectMessage {
  std::uint32_t transport = 0;  // its place in the list of transports, which all ranks share
  transport::Probe probe;       // how to try the writer's regions
  transport::Endpoint endpoint;
};

control::MessageBytes encode(const ConnectMessage& message);
// Nothing if it is malformed, or names a place beyond `transports`.
std::optional<ConnectMessage> decode_connect_message(const control::MessageBytes& bytes,
                                                     std::size_t transports);

}  // namespace gyre::comm
