#include "lib/trust/interfaces.h"

#include "lib/base/owned.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

namespace gyre::trust {
namespace {

struct FileTraits {
  using Handle = std::FILE*;
  static Handle none() { return nullptr; }
  static void close(Handle file) { (void)std::fclose(file); }
};

bool family_matches(const Interface& interface, std::string_view family) {
  if (family == "AF_INET") return interface.address.family() == AF_INET;
  if (family == "AF_INET6") return interface.address.family() == AF_INET6;
  return true;
}

std::string_view hindrance(const Interface& interface) {
  if (!interface.has_carrier) return ", no carrier";
  if (interface.loopback) return ", loopback";
  return is_container_bridge(interface.name) ? ", a bridge of containers" : "";
}

std::string names_of(std::span<const Interface> interfaces) {
  std::string names;
  for (const Interface& interface : interfaces)
    names += fmt::format("{}{} ({}{})", names.empty() ? "" : ", ", interface.name,
                         format_address(interface.address), hindrance(interface));
  return names.empty() ? "none" : names;
}

template <class Address>
Interface make_interface(std::string_view name, const Address& address) {
  Interface made;
  made.name = name;
  std::memcpy(&made.address.storage, &address, sizeof address);
  made.address.length = sizeof address;
  return made;
}

// All addresses of one family. The kernel says how many there are, and may have more a moment
// later: a list that fills its room is asked for again.
Status list_v4(const FileDescriptor& socket, std::vector<Interface>* interfaces) {
  std::vector<ifreq> rows;
  ifconf list{};
  do {
    rows.resize(rows.size() * 2 + 16);
    list.ifc_len = static_cast<int>(rows.size() * sizeof(ifreq));
    list.ifc_req = rows.data();
    if (::ioctl(socket.get(), SIOCGIFCONF, &list) != 0)
      return Status::from_errno("listing the interfaces (SIOCGIFCONF)", errno);
  } while (static_cast<std::size_t>(list.ifc_len) == rows.size() * sizeof(ifreq));
  rows.resize(static_cast<std::size_t>(list.ifc_len) / sizeof(ifreq));
  for (const ifreq& row : rows) {
    sockaddr_in address;
    std::memcpy(&address, &row.ifr_addr, sizeof address);
    interfaces->push_back(make_interface(row.ifr_name, address));
  }
  return {};
}

// Each line of if_inet6 is: 32 hexadecimal digits, the interface's number, the prefix's length, its
// scope, flags, and the name. A kernel without IPv6 has no such file.
Status list_v6(std::vector<Interface>* interfaces) {
  const Owned<FileTraits> file(std::fopen("/proc/thread-self/net/if_inet6", "re"));
  if (!file.has_value())
    return errno == ENOENT ? Status()
                           : Status::from_errno("opening /proc/thread-self/net/if_inet6", errno);
  char digits[33] = {}, name[IFNAMSIZ] = {};
  while (std::fscanf(file.get(), "%32s %*x %*x %*x %*x %15s", digits, name) == 2) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    for (std::size_t byte = 0; byte < 16; ++byte) {
      unsigned value = 0;
      if (std::sscanf(digits + 2 * byte, "%2x", &value) != 1)
        return Status(Code::SystemError,
                      "/proc/thread-self/net/if_inet6 has a line that is no address");
      address.sin6_addr.s6_addr[byte] = static_cast<std::uint8_t>(value);
    }
    if (!IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr))
      interfaces->push_back(make_interface(name, address));
  }
  if (std::ferror(file.get()) == 0) return {};
  return Status::from_errno("reading /proc/thread-self/net/if_inet6", errno);
}

Result<short> flags_of(const FileDescriptor& socket, const std::string& name) {
  ifreq asked{};
  name.copy(asked.ifr_name, sizeof asked.ifr_name - 1);
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &asked) == 0) return asked.ifr_flags;
  // It has gone since it was listed.
  if (errno == ENODEV) return short{0};
  return Status::from_errno(fmt::format("asking for the flags of interface {}", name), errno);
}

// False where the device does not know such a question.
template <class Answer>
bool ask_device(const FileDescriptor& socket, const std::string& name, Answer* answer) {
  ifreq asked{};
  name.copy(asked.ifr_name, sizeof asked.ifr_name - 1);
  asked.ifr_data = reinterpret_cast<char*>(answer);
  return ::ioctl(socket.get(), SIOCETHTOOL, &asked) == 0;
}

// IFF_RUNNING follows the carrier a second later.
bool has_carrier(const FileDescriptor& socket, const std::string& name, short flags) {
  ethtool_value link{.cmd = ETHTOOL_GLINK, .data = 0};
  return ask_device(socket, name, &link) ? link.data != 0 : (flags & IFF_RUNNING) != 0;
}

int megabits_per_s(const FileDescriptor& socket, const std::string& name) {
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  if (!ask_device(socket, name, &settings)) return 0;
  const std::uint32_t megabits = ethtool_cmd_speed(&settings);
  return megabits <= INT_MAX ? static_cast<int>(megabits) : 0;  // SPEED_UNKNOWN is -1
}

bool is_by_name(std::string_view wanted) { return !wanted.empty() && wanted.front() != '^'; }

}  // namespace

// Not getifaddrs: it ends the process (glibc's "Unexpected error 9 on netlink descriptor") when
// another thread closes all descriptors, as programs do before they start others.
Result<std::vector<Interface>> list_interfaces() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.has_value()) return Status::from_errno("socket for the list of interfaces", errno);
  std::vector<Interface> listed, up;
  GYRE_TRY(list_v4(socket, &listed));
  GYRE_TRY(list_v6(&listed));
  for (Interface& interface : listed) {
    GYRE_ASSIGN(const short flags, flags_of(socket, interface.name));
    interface.loopback = (flags & IFF_LOOPBACK) != 0;
    interface.has_carrier = has_carrier(socket, interface.name, flags);
    interface.megabits_per_s = megabits_per_s(socket, interface.name);
    if ((flags & IFF_UP) != 0) up.push_back(std::move(interface));
  }
  return up;
}

int interface_megabits_per_s(std::string_view address) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::vector<Interface> listed;
  if (!socket.has_value() || !list_v4(socket, &listed).ok() || !list_v6(&listed).ok()) return 0;
  for (const Interface& interface : listed)
    if (host_of(format_address(interface.address)) == host_of(address))
      return megabits_per_s(socket, interface.name);
  return 0;
}

bool interface_matches(std::string_view wanted, std::string_view name) {
  const bool exclude = wanted.starts_with('^');
  if (exclude) wanted.remove_prefix(1);
  const bool exact = wanted.starts_with('=');
  if (exact) wanted.remove_prefix(1);
  bool listed = false;
  while (!wanted.empty()) {
    const std::size_t comma = std::min(wanted.find(','), wanted.size());
    const std::string_view word = wanted.substr(0, comma);
    wanted.remove_prefix(std::min(comma + 1, wanted.size()));
    if (!word.empty()) listed |= exact ? name == word : name.starts_with(word);
  }
  return listed != exclude;
}

bool is_container_bridge(std::string_view name) {
  constexpr std::string_view usual[] = {"docker", "br-",   "virbr", "cni",     "podman",
                                        "lxcbr",  "lxdbr", "cali",  "flannel", "kube-bridge"};
  return std::ranges::any_of(usual,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

Result<std::vector<Interface>> choose_interfaces(std::span<const Interface> interfaces,
                                                 std::string_view wanted, std::string_view family,
                                                 std::size_t most) {
  std::vector<Interface> chosen(1);
  GYRE_ASSIGN(chosen[0], choose_interface(interfaces, wanted, family));
  if (!is_by_name(wanted)) return chosen;
  for (const Interface& each : interfaces) {
    const bool fits = each.has_carrier && interface_matches(wanted, each.name) &&
                      each.address.family() == chosen[0].address.family();
    const bool is_new = std::ranges::find(chosen, each.name, &Interface::name) == chosen.end();
    if (fits && is_new && chosen.size() < most) chosen.push_back(each);
  }
  return chosen;
}

Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view wanted,
                                   std::string_view family) {
  const bool is_named = is_by_name(wanted);
  std::vector<const Interface*> fit;
  for (const Interface& each : interfaces)
    if (family_matches(each, family) && (wanted.empty() || interface_matches(wanted, each.name)) &&
        each.has_carrier && (is_named || hindrance(each).empty()))
      fit.push_back(&each);
  if (fit.empty())
    return invalid_argument(
        fmt::format("no interface fits GYRE_SOCKET_IFNAME='{}' and "
                    "GYRE_SOCKET_FAMILY={}; there are: {}",
                    wanted, family, names_of(interfaces)));
  const bool all_known =
      std::ranges::all_of(fit, [](const Interface* each) { return each->megabits_per_s > 0; });
  if (is_named || !all_known) return *fit.front();
  return **std::ranges::max_element(fit, {}, &Interface::megabits_per_s);  // the first of equals
}

}  // namespace gyre::trust
