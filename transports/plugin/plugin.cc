#include "transports/plugin/plugin.h"

#include "lib/base/log.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <mutex>

namespace gyre::transport {
namespace {

// The members of the first release; later ones may be missing.
constexpr std::size_t min_table_bytes = offsetof(gyreTransportTable_t, check) + sizeof(void*);
static_assert(min_table_bytes == 152, "the table only grows, and its members stay where they are");

Status refuse(const std::string& path, std::string_view why) {
  return invalid_usage(fmt::format("GYRE_TRANSPORT_PLUGIN: {} {}", path, why));
}

bool is_name(const char* text) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const std::size_t length = strnlen(text, GYRE_TRANSPORT_MAX_NAME + 1);
  return length <= GYRE_TRANSPORT_MAX_NAME && is_letter(text[0]) &&
         std::all_of(text, text + length,
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

// The first function that has to be there and is not; or null.
const char* find_missing(const gyreTransportTable_t& table) {
  const std::pair<const char*, bool> needed[] = {{"open", table.open != nullptr},
                                                 {"close", table.close != nullptr},
                                                 {"reach", table.reach != nullptr},
                                                 {"listen", table.listen != nullptr},
                                                 {"accept", table.accept != nullptr},
                                                 {"closeListener", table.closeListener != nullptr},
                                                 {"connect", table.connect != nullptr},
                                                 {"send", table.send != nullptr},
                                                 {"receive", table.receive != nullptr},
                                                 {"closeStream", table.closeStream != nullptr},
                                                 {"waitListener", table.waitListener != nullptr},
                                                 {"waitStream", table.waitStream != nullptr}};
  for (const auto& [name, is_there] : needed)
    if (!is_there) return name;
  return nullptr;
}

struct LoadedPlugins {
  std::mutex mutex;
  std::vector<std::unique_ptr<const Plugin>> all;

  template <typename Predicate>
  const Plugin* find(const Predicate& is_it) const {
    for (const auto& one : all)
      if (is_it(*one)) return one.get();
    return nullptr;
  }
};

// Of the whole process, and never destroyed: other objects may use plug-ins while it ends.
LoadedPlugins& loaded_plugins() {
  static auto* const plugins = new LoadedPlugins;
  return *plugins;
}

Result<Plugin> load(const std::string& path) {
  if (!path.starts_with('/'))
    return refuse(path, "is not an absolute path: give the whole path, from / on");
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return refuse(path, fmt::format("cannot be loaded: {}", why != nullptr ? why : "no reason"));
  }
  const auto entry = reinterpret_cast<gyreTransportPlugin_t>(dlsym(library, GYRE_TRANSPORT_ENTRY));
  if (entry == nullptr)
    return refuse(path, "has no function " GYRE_TRANSPORT_ENTRY
                        ": it is not a transport plug-in, or hides its symbols");
  return check_plugin(entry(GYRE_TRANSPORT_VERSION), path);
}

}  // namespace

Result<Plugin> check_plugin(const gyreTransportTable_t* table, const std::string& path) {
  if (table == nullptr)
    return refuse(path, fmt::format("returned no table: it cannot work with version {} of "
                                    "gyre/transport.h, or not on this machine",
                                    GYRE_TRANSPORT_VERSION));
  if (table->version != GYRE_TRANSPORT_VERSION)
    return refuse(path, fmt::format("has version {} of gyre/transport.h, and this Gyre version {}: "
                                    "build it with this Gyre's header",
                                    table->version, GYRE_TRANSPORT_VERSION));
  if (table->size < min_table_bytes)
    return refuse(path, fmt::format("has a table of {} bytes, and the smallest one has {}: build "
                                    "it with gyre/transport.h, and set its size",
                                    table->size, min_table_bytes));
  Plugin plugin{.path = path, .name = {}, .reaches = {}};
  std::memcpy(&plugin.table, table, std::min(table->size, sizeof plugin.table));
  const gyreTransportTable_t& copy = plugin.table;
  if (copy.flags != 0) return refuse(path, fmt::format("sets unknown flags {:#x}", copy.flags));
  if (copy.name == nullptr || !is_name(copy.name))
    return refuse(path, fmt::format("has a name that is none: a lower-case letter, then lower-case "
                                    "letters, digits and _, {} in all at the most",
                                    GYRE_TRANSPORT_MAX_NAME));
  if (copy.reaches == nullptr) return refuse(path, "does not say whom it reaches");
  if (const char* const missing = find_missing(copy); missing != nullptr)
    return refuse(path, fmt::format("has no function {} in its table", missing));
  plugin.name = copy.name;
  plugin.reaches = copy.reaches;
  return plugin;
}

Result<std::vector<const Plugin*>> load_plugins(std::string_view paths) {
  LoadedPlugins& plugins = loaded_plugins();
  const std::lock_guard lock(plugins.mutex);
  std::vector<const Plugin*> wanted;
  while (!paths.empty()) {
    const std::size_t colon = std::min(paths.find(':'), paths.size());
    const std::string path(paths.substr(0, colon));
    paths.remove_prefix(std::min(colon + 1, paths.size()));
    if (path.empty()) continue;
    const Plugin* found = plugins.find([&](const Plugin& one) { return one.path == path; });
    if (found == nullptr) {
      GYRE_ASSIGN(Plugin plugin, load(path));
      const Plugin* const other =
          plugins.find([&](const Plugin& one) { return one.name == plugin.name; });
      if (other != nullptr)
        return refuse(path, fmt::format("has the name {}, as {} has: leave one of them out",
                                        plugin.name, other->path));
      log_info(Subsystem::init, "transport {} is loaded from {}", plugin.name, path);
      plugins.all.push_back(std::make_unique<const Plugin>(std::move(plugin)));
      found = plugins.all.back().get();
    }
    if (std::ranges::count(wanted, found) == 0) wanted.push_back(found);
  }
  return wanted;
}

const Plugin* find_plugin(std::string_view name) {
  LoadedPlugins& plugins = loaded_plugins();
  const std::lock_guard lock(plugins.mutex);
  return plugins.find([&](const Plugin& one) { return one.name == name; });
}

}  // namespace gyre::transport
