#include "lib/control/metrics_place.h"

#include "lib/base/file_pattern.h"
#include "lib/base/settings.h"

#include <fmt/core.h>

#include <cstddef>
#include <cstring>
#include <netinet/in.h>
#include <sys/un.h>

namespace gyre::control {
namespace {

constexpr std::string_view unix_prefix = "unix:";
constexpr std::int64_t max_port = 65535;

// A name in the file system, so that its mode says who may ask.
bool set_path(const std::string& path, MetricsPlace* place) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() < 2 || path[0] != '/' || path.find('\0') != path.npos ||
      path.size() >= sizeof address.sun_path)
    return false;
  path.copy(address.sun_path, path.size());
  std::memcpy(&place->address.storage, &address, sizeof address);
  place->address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  place->path = path;
  return true;
}

std::uint16_t port_of(const trust::SocketAddress& address) {
  // Of IPv4 and IPv6 at one place.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

}  // namespace

Result<MetricsPlace> read_metrics_place(const std::string& text, int local_rank) {
  const auto refused = [&](std::string_view why) {
    return invalid_usage(
        fmt::format("GYRE_METRICS=\"{}\" is not accepted: {}give a port (of 127.0.0.1, from 0 to "
                    "65535, 0 takes any), 1.2.3.4:port, [::1]:port, or unix:/path of at most {} "
                    "letters",
                    text, why, sizeof sockaddr_un().sun_path - 1));
  };
  MetricsPlace place;
  if (text.starts_with(unix_prefix)) {
    if (!set_path(expand_file_pattern(text.substr(unix_prefix.size())), &place)) return refused("");
    return place;
  }
  const bool alone = text.find(':') == text.npos;
  auto address = trust::parse_address(alone ? "127.0.0.1:" + text : text);
  if (!address.ok()) return refused("");
  place.address = *address;
  const std::int64_t port = port_of(place.address);
  if (port == 0 || local_rank <= 0) return place;
  if (port + local_rank > max_port)
    return refused(
        fmt::format("with the local rank {} the port is {}; ", local_rank, port + local_rank));
  reinterpret_cast<sockaddr_in&>(place.address.storage).sin_port =
      htons(static_cast<std::uint16_t>(port + local_rank));
  return place;
}

}  // namespace gyre::control
