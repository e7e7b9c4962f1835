#include "lib/links/transport_registry.h"

#include "transports/plugin/plugin.h"
#include "transports/rdma/announcement.h"
#include "transports/rdma/rdma.h"
#include "transports/self/self.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"
#include "transports/ucx/announcement.h"
#include "transports/ucx/ucx.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace gyre::comm {
namespace {

// `self` is no way between ranks that one could want to leave out.
constexpr TransportRow rows[] = {
    {.name = "self",
     .reaches = "a rank itself",
     .make = transport::make_self_transport,
     .needs_no_naming = true,
     .medium = topology::Medium::own_memory},
    {.name = "p2p",
     .reaches = "GPUs of one host, by their own memory",
     .needs_no_naming = true,
     .disabled = &Settings::p2p_disable,
     .disabled_by = "GYRE_P2P_DISABLE",
     .medium = topology::Medium::gpu_memory},
    {.name = "shm",
     .reaches = "ranks of one host, by shared memory",
     .make = transport::make_shm_transport,
     .disabled = &Settings::shm_disable,
     .disabled_by = "GYRE_SHM_DISABLE",
     .medium = topology::Medium::host_memory},
    {.name = "rdma",
     .reaches = "hosts on one InfiniBand or RoCE network",
     .between_hosts = "IB",
     .make = transport::make_rdma_transport,
     .disabled = &Settings::ib_disable,
     .disabled_by = "GYRE_IB_DISABLE",
     .medium = topology::Medium::verbs},
    {.name = "tcp",
     .reaches = "any host",
     .between_hosts = "Socket",
     .make = transport::make_tcp_transport,
     .medium = topology::Medium::sockets},
    // UCX changes the process that loads it, so nobody gets it unasked.
    {.name = "ucx",
     .reaches = "any rank, by UCX; if it is named here",
     .make = transport::make_ucx_transport,
     .needs_naming = true,
     .medium = topology::Medium::ucx},
};

// What GYRE_TRANSPORT says.
struct TransportFilter {
  std::vector<std::string_view> names;
  bool are_left_out = false;  // ^: all but these
};

TransportRow row_of(const transport::Plugin& plugin) {
  return {.name = plugin.name, .reaches = plugin.reaches, .plugin = &plugin};
}

// Those of this build, and behind them the plug-ins that the settings name.
Result<std::vector<TransportRow>> known_transports(const Settings& settings) {
  std::vector<TransportRow> known(std::begin(rows), std::end(rows));
  GYRE_ASSIGN(const std::vector<const transport::Plugin*> plugins,
              transport::load_plugins(settings.transport_plugin));
  for (const transport::Plugin* plugin : plugins) {
    if (std::ranges::count(rows, plugin->name, &TransportRow::name) > 0)
      return invalid_usage(fmt::format(
          "GYRE_TRANSPORT_PLUGIN: {} has the name {}, which is that of a transport of Gyre's",
          plugin->path, plugin->name));
    known.push_back(row_of(*plugin));
  }
  return known;
}

std::string names_of(std::span<const TransportRow> some) {
  std::string names;
  for (const TransportRow& row : some) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

Result<TransportFilter> read_wanted(const Settings& settings, std::span<const TransportRow> known) {
  TransportFilter wanted;
  std::string_view text = settings.transport;
  wanted.are_left_out = text.starts_with('^');
  if (wanted.are_left_out) text.remove_prefix(1);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    wanted.names.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (std::ranges::count(known, wanted.names.back(), &TransportRow::name) == 0)
      return invalid_usage(
          fmt::format("GYRE_TRANSPORT=\"{}\": \"{}\" is not a transport; there are "
                      "{}",
                      settings.transport, wanted.names.back(), names_of(known)));
  }
  return wanted;
}

bool allows(const TransportFilter& wanted, const TransportRow& row, const Settings& settings) {
  if (row.disabled != nullptr && settings.*row.disabled) return false;
  const bool is_named = std::ranges::count(wanted.names, row.name) > 0;
  if (row.needs_naming) return is_named && !wanted.are_left_out;
  if (wanted.are_left_out) return !is_named || row.name == "self";
  return is_named || wanted.names.empty() || row.needs_no_naming;
}

}  // namespace

std::span<const TransportRow> transport_registry() { return rows; }

std::string transport_choices() { return names_of(rows); }

Result<bool> is_transport_allowed(std::string_view name, const Settings& settings) {
  GYRE_ASSIGN(const std::vector<TransportRow> known, known_transports(settings));
  GYRE_ASSIGN(const TransportFilter wanted, read_wanted(settings, known));
  return allows(wanted, *std::ranges::find(known, name, &TransportRow::name), settings);
}

Result<std::string> alone_between_hosts(std::string_view name) {
  bool is_known = false;
  std::string choices, others;
  for (const TransportRow& row : rows) {
    if (row.between_hosts.empty()) continue;
    choices += fmt::format("{}{} ({})", choices.empty() ? "" : ", ", row.name, row.between_hosts);
    const bool is_it = name == row.name || name == row.between_hosts;
    is_known |= is_it;
    if (!is_it) others += fmt::format("{}{}", others.empty() ? "^" : ",", row.name);
  }
  if (is_known) return others;
  return invalid_usage(
      fmt::format("\"{}\" is not a transport between hosts; there are {}", name, choices));
}

Result<std::vector<TransportRow>> allowed_transports(const Settings& settings) {
  GYRE_ASSIGN(const std::vector<TransportRow> known, known_transports(settings));
  GYRE_ASSIGN(const TransportFilter wanted, read_wanted(settings, known));
  std::vector<TransportRow> allowed;
  for (const TransportRow& row : known)
    if (allows(wanted, row, settings)) allowed.push_back(row);
  // As they are named; what is not named comes first, by its row.
  const auto place = [&](const TransportRow& row) {
    const auto named = std::ranges::find(wanted.names, row.name);
    return named == wanted.names.end() ? -1 : named - wanted.names.begin();
  };
  if (!wanted.are_left_out) std::ranges::stable_sort(allowed, {}, place);
  return allowed;
}

Result<TransportList> make_transports(const Settings& settings,
                                      const transport::TransportEnvironment& environment) {
  GYRE_ASSIGN(const std::vector<TransportRow> allowed, allowed_transports(settings));
  TransportList list;
  for (const TransportRow& row : allowed)
    if (row.plugin != nullptr)
      list.push_back(transport::make_plugin_transport(*row.plugin, environment));
    else if (row.make != nullptr)
      list.push_back(row.make(environment));
  return list;
}

TransportRow transport_row(std::string_view name) {
  const TransportRow* const found = std::ranges::find(rows, name, &TransportRow::name);
  return found != std::end(rows) ? *found : row_of(*transport::find_plugin(name));
}

std::string transport_names(const TransportList& transports) {
  std::string names;
  for (const auto& transport : transports) {
    if (!names.empty()) names += ',';
    names += transport->name();
  }
  return names;
}

bool has_shared_memory(const TransportList& transports) {
  return std::ranges::any_of(transports, [](const auto& transport) {
    return transport_row(transport->name()).medium == topology::Medium::host_memory;
  });
}

bool may_carry_loans(std::string_view announcement) {
  return announcement.find(transport::rdma_announcement) != announcement.npos;
}

bool may_go_by_ucx(std::string_view announcement) {
  return announcement.find(transport::ucx_announcement) != announcement.npos;
}

}  // namespace gyre::comm
