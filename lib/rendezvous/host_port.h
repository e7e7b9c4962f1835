// HostPort: the host and the port of GYRE_RENDEZVOUS_ADDRESS, for a name server.
#pragma once

#include "lib/base/status.h"

#include <string>

namespace gyre::rendezvous {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  std::string port;  // a number from 1 to 65535
};

// "host:80", "1.2.3.4:80" or "[::1]:80".
Result<HostPort> split_host_port(const std::string& text);

}  // namespace gyre::rendezvous
