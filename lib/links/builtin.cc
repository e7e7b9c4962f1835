#include "lib/links/builtin.h"

#include "transports/self/self.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

#include <fmt/format.h>

#include <algorithm>

namespace gyre::comm {
namespace {

constexpr std::string_view known[] = {"self", "shm", "tcp"};

Result<std::vector<std::string_view>> wanted(const Settings& settings) {
  std::vector<std::string_view> names(std::begin(known), std::end(known));
  std::string_view text = settings.transport;
  const bool exclude = text.starts_with('^');
  if (exclude) text.remove_prefix(1);
  std::vector<std::string_view> listed;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    listed.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (std::ranges::find(known, listed.back()) == std::end(known))
      return invalid_usage(
          fmt::format("GYRE_TRANSPORT=\"{}\": \"{}\" is not a transport; there are "
                      "self, shm, tcp",
                      settings.transport, listed.back()));
  }
  if (exclude)
    std::erase_if(names, [&](auto name) { return std::ranges::count(listed, name) > 0; });
  else if (!listed.empty())
    names = listed;
  if (settings.shm_disable) std::erase(names, "shm");
  // Two lanes of one rank always need it; it is no way between ranks that one could want to leave
  // out.
  if (std::ranges::count(names, "self") == 0) names.insert(names.begin(), "self");
  return names;
}

}  // namespace

Result<TransportList> make_transports(const Settings& settings,
                                      const transport::Surroundings& surroundings) {
  GYRE_ASSIGN(const std::vector<std::string_view> names, wanted(settings));
  TransportList list;
  for (std::string_view name : names) {
    if (name == "self") list.push_back(transport::make_self_transport(surroundings));
    if (name == "shm") list.push_back(transport::make_shm_transport(surroundings));
    if (name == "tcp") list.push_back(transport::make_tcp_transport(surroundings));
  }
  return list;
}

std::string transport_names(const TransportList& transports) {
  std::string names;
  for (const auto& transport : transports) {
    if (!names.empty()) names += ',';
    names += transport->name();
  }
  return names;
}

}  // namespace gyre::comm
