// Plug-ins: transports of libraries that the user names, by the interface of gyre/transport.h. Each
// is loaded once and stays until the process ends. A table is checked and copied when its library
// is loaded; what its functions say is checked at each call (plugin_calls.h).
#pragma once

#include "lib/transport/transport.h"
#include <gyre/transport.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::transport {

struct Plugin {
  std::string path;  // of its library
  std::string name, reaches;
  gyreTransportTable_t table{};  // members beyond the library's own are null
};

// What the library's function returned, if it is a table that can be used.
Result<Plugin> check_plugin(const gyreTransportTable_t* table, const std::string& path);

// Those of GYRE_TRANSPORT_PLUGIN, paths separated by ':', in that order. They stay where they are.
Result<std::vector<const Plugin*>> load_plugins(std::string_view paths);
// One that is loaded; else null.
const Plugin* find_plugin(std::string_view name);

// The plug-in has to outlive it.
std::unique_ptr<Transport> make_plugin_transport(const Plugin& plugin,
                                                 const TransportEnvironment& environment);

}  // namespace gyre::transport
