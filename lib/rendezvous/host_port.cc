#include "lib/rendezvous/host_port.h"

#include "lib/base/settings.h"

#include <fmt/core.h>

namespace gyre::rendezvous {

Result<HostPort> split_host_port(const std::string& text) {
  const Status refused = invalid_usage(fmt::format(
      "GYRE_RENDEZVOUS_ADDRESS=\"{}\" is not accepted: give host:port, 1.2.3.4:port or [::1]:port, "
      "with a port from 1 to 65535",
      text));
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return refused;
  HostPort parts{text.substr(0, colon), text.substr(colon + 1)};
  if (!parse_integer(parts.port, 1, 65535).ok()) return refused;
  const bool bracketed = parts.host.front() == '[' && parts.host.back() == ']';
  if (bracketed) parts.host = parts.host.substr(1, parts.host.size() - 2);
  if (parts.host.empty() || (!bracketed && parts.host.find(':') != parts.host.npos)) return refused;
  return parts;
}

}  // namespace gyre::rendezvous
