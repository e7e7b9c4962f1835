// Addresses as text and as the kernel returns them, GYRE_SOCKET_IFNAME's grammar, and host:port.
// Input: u8 which, then blocks.
#include "lib/rendezvous/host_port.h"
#include "lib/trust/address.h"
#include "lib/trust/interfaces.h"
#include "tests/fuzz/input.h"

#include <netinet/in.h>
#include <sys/un.h>

namespace address_fuzz {

using namespace gyre;
using namespace gyre::trust;

namespace {

void read_address(fuzz::Input& input) {
  const std::string text = input.take_text();
  const auto address = parse_address(text);
  if (!address.ok()) return;
  GYRE_DEMAND(address->family() == AF_INET || address->family() == AF_INET6);
  GYRE_DEMAND(address->length ==
              (address->family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  const std::string shown = format_address(*address);
  const auto again = parse_address(shown);
  GYRE_DEMAND(again.ok() && format_address(*again) == shown && again->length == address->length);
  GYRE_DEMAND(std::memcmp(&again->storage, &address->storage, address->length) == 0);
}

// As getpeername fills one in.
void show_address(fuzz::Input& input) {
  SocketAddress address;
  const auto bytes = input.rest();
  address.length = static_cast<socklen_t>(std::min(bytes.size(), sizeof address.storage));
  std::memcpy(&address.storage, bytes.data(), address.length);
  GYRE_DEMAND(!format_address(address).empty());
}

void read_name(fuzz::Input& input) {
  const std::string name = input.take_text();
  const auto address = abstract_address(name);
  GYRE_DEMAND(address.ok() == (!name.empty() && name.size() < sizeof(sockaddr_un::sun_path)));
  if (address.ok()) GYRE_DEMAND(format_address(*address) == "@" + name);
}

void read_host_port(fuzz::Input& input) {
  const std::string text = input.take_text();
  const auto parts = rendezvous::split_host_port(text);
  if (!parts.ok()) return;
  GYRE_DEMAND(!parts->host.empty() && !parts->port.empty() && parts->port.size() <= text.size());
  GYRE_DEMAND(std::ranges::all_of(parts->port, [](char c) { return c >= '0' && c <= '9'; }));
  // What is an address is split as an address is.
  if (parse_address(text).ok())
    GYRE_DEMAND(parse_address("[" + parts->host + "]:" + parts->port).ok() ||
                parse_address(parts->host + ":" + parts->port).ok());
}

bool listed(std::string_view words, std::string_view name, bool exact) {
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const std::string_view word = words.substr(begin, end - begin);
    if (!word.empty() && (exact ? word == name : name.starts_with(word))) return true;
    begin = end + 1;
  }
  return false;
}

// Input: the wish, u8 family, then interfaces: name, u8 flags, address as text.
void choose(fuzz::Input& input) {
  const std::string wanted = input.take_text();
  constexpr std::string_view families[] = {"ANY", "AF_INET", "AF_INET6"};
  const std::string_view family = families[input.take<std::uint8_t>() % 3];
  std::vector<Interface> interfaces;
  while (!input.empty() && interfaces.size() < 8) {
    Interface each;
    each.name = input.take_text();
    const auto flags = input.take<std::uint8_t>();
    each.loopback = (flags & 1) != 0;
    each.has_carrier = (flags & 2) == 0;
    const auto address = parse_address(input.take_text());
    if (!address.ok()) continue;
    each.address = *address;
    interfaces.push_back(std::move(each));
  }
  std::string_view words = wanted;
  const bool exclude = words.starts_with('^');
  if (exclude) words.remove_prefix(1);
  const bool exact = words.starts_with('=');
  if (exact) words.remove_prefix(1);
  const auto fits = [&](const Interface& each) {
    const bool good_name = wanted.empty() || listed(words, each.name, exact) != exclude;
    const bool good_family =
        family == "ANY" || (each.address.family() == AF_INET6) == (family == families[2]);
    const bool is_named = !wanted.empty() && !exclude;
    return good_name && good_family && each.has_carrier &&
           (is_named || (!each.loopback && !is_container_bridge(each.name)));
  };
  for (const Interface& each : interfaces)
    if (!wanted.empty())
      GYRE_DEMAND(interface_matches(wanted, each.name) ==
                  (listed(words, each.name, exact) != exclude));
  const auto chosen = choose_interface(interfaces, wanted, family);
  GYRE_DEMAND(chosen.ok() == std::ranges::any_of(interfaces, fits));
  if (chosen.ok()) GYRE_DEMAND(fits(*chosen));
  const auto several = choose_interfaces(interfaces, wanted, family, 2);
  GYRE_DEMAND(several.ok() == chosen.ok());
  if (!chosen.ok()) return;
  GYRE_DEMAND(several->size() <= 2 && several->front().name == chosen->name);
  GYRE_DEMAND(std::ranges::all_of(*several, fits));
  GYRE_DEMAND(several->size() == 1 || several->back().name != chosen->name);
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  constexpr void (*parts[])(fuzz::Input&) = {read_address, show_address, read_name, read_host_port,
                                             choose};
  parts[input.take<std::uint8_t>() % std::size(parts)](input);
  return 0;
}

GYRE_FUZZ_TARGET(address)

}  // namespace address_fuzz
