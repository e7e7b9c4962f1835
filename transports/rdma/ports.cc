#include "transports/rdma/ports.h"

#include "transports/rdma/announcement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <charconv>
#include <cstring>
#include <memory>
#include <span>

namespace gyre::transport {
namespace {

// IBTA volume 1, PortInfo: LinkSpeedActive and LinkWidthActive, one bit each.
double gigabits_of_lane(unsigned code) {
  switch (code) {
    case 1:
      return 2.5;
    case 2:
      return 5;
    case 4:
      return 10;
    case 8:
      return 10;
    case 16:
      return 14;
    case 32:
      return 25;
    case 64:
      return 50;
    case 128:
      return 100;
    default:
      return 0;
  }
}
int lanes_of(unsigned code) {
  switch (code) {
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 1;
  }
}

std::string_view state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing: on InfiniBand it waits for a subnet manager";
    case IBV_PORT_ARMED:
      return "armed: it waits for a subnet manager";
    case IBV_PORT_ACTIVE:
      return "active";
    default:
      return "in an unknown state";
  }
}

bool is_mapped_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, prefix, sizeof prefix) == 0;
}

bool is_zero(const ibv_gid& gid) {
  return std::ranges::all_of(gid.raw, [](std::uint8_t byte) { return byte == 0; });
}

RdmaNetwork network_of(const ibv_gid_entry& entry) {
  if (entry.gid_type == IBV_GID_TYPE_IB) return RdmaNetwork::infiniband;
  if (is_mapped_ipv4(entry.gid)) return RdmaNetwork::roce_ipv4;
  const bool is_link_local = entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
  return is_link_local ? RdmaNetwork::roce_link_local : RdmaNetwork::roce_ipv6;
}

std::string gid_list(const std::vector<ibv_gid_entry>& entries) {
  std::string text;
  for (const ibv_gid_entry& entry : entries)
    text += fmt::format(
        "{}{} {} ({})", text.empty() ? "" : ", ", entry.gid_index, gid_text(entry.gid),
        entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : network_text(network_of(entry)));
  return text.empty() ? "none" : text;
}

Result<std::vector<ibv_gid_entry>> read_gids(const RdmaPort& port) {
  constexpr std::size_t most = 1024;  // of all ports of the device
  std::vector<ibv_gid_entry> entries(most);
  const ssize_t count = port.device->table().gid_table(port.device->context(), entries.data(), most,
                                                       0, sizeof(ibv_gid_entry));
  if (count < 0)
    return Status::from_errno(fmt::format("reading the GIDs of {}", port.name()),
                              static_cast<int>(-count));
  entries.resize(std::min(static_cast<std::size_t>(count), most));
  std::erase_if(entries, [&](const ibv_gid_entry& entry) {
    return entry.port_num != port.number || is_zero(entry.gid) || entry.gid_index > UINT8_MAX;
  });
  return entries;
}

// One GID for each network, the first of the table; or the one that the settings name.
Status choose_gids(const RdmaOptions& options, RdmaPort& port) {
  GYRE_ASSIGN(const std::vector<ibv_gid_entry> entries, read_gids(port));
  for (const ibv_gid_entry& entry : entries) {
    const bool is_wanted = options.gid_index < 0
                               ? entry.gid_type != IBV_GID_TYPE_ROCE_V1
                               : static_cast<int>(entry.gid_index) == options.gid_index;
    const RdmaNetwork network = network_of(entry);
    if (is_wanted && port.on(network) == nullptr)
      port.gids.push_back({entry.gid, static_cast<std::uint8_t>(entry.gid_index), network});
  }
  std::ranges::sort(port.gids, {}, &RdmaGid::network);
  if (options.gid_index >= 0 && port.gids.empty())
    return invalid_usage(fmt::format("GYRE_IB_GID_INDEX={}: port {} has no such GID; it has {}",
                                     options.gid_index, port.name(), gid_list(entries)));
  return {};
}

// Why a port is not used; empty if it is.
std::string objection(const RdmaPort& port) {
  if (port.attributes.state != IBV_PORT_ACTIVE)
    return std::string(state_text(port.attributes.state));
  if (!port.gids.empty()) return {};
  return port.attributes.link_layer == IBV_LINK_LAYER_ETHERNET
             ? "it has no RoCE v2 GID: give its network interface an address"
             : "it has no GID";
}

struct DeviceListDeleter {
  const loaded::Verbs* verbs;
  void operator()(ibv_device** list) const { verbs->free_device_list(list); }
};

struct DeviceSurvey {
  loaded::SharedVerbs& shared;
  const RdmaOptions& options;
  RdmaPorts found{};
  std::vector<std::string> names{};  // of all ports
  int allowed = 0;                   // of them, by GYRE_IB_HCA

  Status add_device(const std::string& name, ibv_device* device);
  Status add_port(const std::shared_ptr<loaded::VerbsDevice>& device, std::uint8_t number);
};

Status DeviceSurvey::add_port(const std::shared_ptr<loaded::VerbsDevice>& device,
                              std::uint8_t number) {
  RdmaPort port{.device = device, .number = number};
  names.push_back(port.name());
  GYRE_ASSIGN(const bool is_allowed, hca_matches(options.hca, device->name(), number));
  if (!is_allowed) {
    found.skipped.push_back(port.name() + ": GYRE_IB_HCA leaves it out");
    return {};
  }
  ++allowed;
  if (const int failed = device->table().query_port(device->context(), number, &port.attributes);
      failed != 0)
    return Status::from_errno("asking for the state of port " + port.name(), failed);
  if (port.attributes.state == IBV_PORT_ACTIVE) GYRE_TRY(choose_gids(options, port));
  if (const std::string why = objection(port); !why.empty())
    found.skipped.push_back(fmt::format("{}: {}", port.name(), why));
  else
    found.usable.push_back(std::move(port));
  return {};
}

Status DeviceSurvey::add_device(const std::string& name, ibv_device* device) {
  const auto opened = shared.open(device);
  if (!opened.ok()) {
    names.push_back(name);
    found.skipped.push_back(fmt::format("{}: {}", name, opened.status().message()));
    return {};
  }
  const loaded::VerbsDevice& here = **opened;
  ibv_device_attr attributes{};
  if (const int failed = here.table().query_device(here.context(), &attributes); failed != 0)
    return Status::from_errno("asking what device " + name + " has", failed);
  for (int number = 1; number <= attributes.phys_port_cnt; ++number)
    GYRE_TRY(add_port(*opened, static_cast<std::uint8_t>(number)));
  return {};
}

}  // namespace

std::string_view network_word(RdmaNetwork network) {
  constexpr std::string_view words[rdma_network_count] = {"ib", "roce4", "roce6", "roce6-local"};
  return words[static_cast<std::size_t>(network)];
}

std::string_view network_text(RdmaNetwork network) {
  constexpr std::string_view texts[rdma_network_count] = {
      "InfiniBand", "RoCE v2, IPv4", "RoCE v2, IPv6", "RoCE v2, link-local IPv6"};
  return texts[static_cast<std::size_t>(network)];
}

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool is_ipv4 = is_mapped_ipv4(gid);
  const void* const from = is_ipv4 ? gid.raw + 12 : gid.raw;
  return inet_ntop(is_ipv4 ? AF_INET : AF_INET6, from, text, sizeof text) == nullptr ? "?" : text;
}

// A GID of InfiniBand begins with its subnet.
bool is_one_fabric(const RdmaGid& one, const RdmaGid& other) {
  if (one.network != other.network) return false;
  return one.network != RdmaNetwork::infiniband ||
         one.gid.global.subnet_prefix == other.gid.global.subnet_prefix;
}

std::string RdmaPort::name() const { return fmt::format("{}:{}", device->name(), number); }

double RdmaPort::gigabits_per_s() const {
  return gigabits_of_lane(attributes.active_speed) * lanes_of(attributes.active_width);
}

const RdmaGid* RdmaPort::on(RdmaNetwork network) const {
  const auto found = std::ranges::find(gids, network, &RdmaGid::network);
  return found == gids.end() ? nullptr : &*found;
}

Result<bool> hca_matches(std::string_view setting, std::string_view device, int port) {
  const std::string_view whole = setting;
  if (setting.empty()) return true;
  const bool are_left_out = setting.starts_with('^');
  if (are_left_out) setting.remove_prefix(1);
  const bool is_exact = setting.starts_with('=');
  if (is_exact) setting.remove_prefix(1);
  bool is_named = false;
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = std::min(setting.find(','), setting.size());
    is_last = comma == setting.size();
    std::string_view name = setting.substr(0, comma);
    setting.remove_prefix(std::min(comma + 1, setting.size()));
    int number = port;
    if (const std::size_t colon = name.find(':'); colon != name.npos) {
      const std::string_view digits = name.substr(colon + 1);
      const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
      if (error != std::errc() || end != digits.end() || number < 1 || number > UINT8_MAX)
        return invalid_usage(
            fmt::format("GYRE_IB_HCA=\"{}\": \"{}\" is not a port", whole, digits));
      name = name.substr(0, colon);
    }
    if (name.empty())
      return invalid_usage(fmt::format("GYRE_IB_HCA=\"{}\" has an empty name of a device", whole));
    is_named |= number == port && (is_exact ? device == name : device.starts_with(name));
  }
  return is_named != are_left_out;
}

Result<RdmaPorts> find_rdma_ports(loaded::SharedVerbs& shared, const RdmaOptions& options) {
  GYRE_ASSIGN(const loaded::Verbs* const verbs, shared.table());
  int count = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, DeviceListDeleter> list(verbs->device_list(&count), {verbs});
  if (list == nullptr)
    return Status::from_errno("listing the RDMA devices", errno != 0 ? errno : ENODEV);
  DeviceSurvey survey{shared, options};
  for (ibv_device* const device : std::span(list.get(), static_cast<std::size_t>(count)))
    GYRE_TRY(survey.add_device(verbs->device_name(device), device));
  if (!survey.names.empty() && !options.hca.empty() && survey.allowed == 0)
    return invalid_usage(fmt::format("GYRE_IB_HCA=\"{}\" matches no port; there are {}",
                                     options.hca, fmt::join(survey.names, ", ")));
  std::ranges::stable_sort(survey.found.usable, [](const RdmaPort& one, const RdmaPort& other) {
    return one.gigabits_per_s() > other.gigabits_per_s();
  });
  return std::move(survey.found);
}

namespace {

std::string announced_word(const RdmaGid& gid) {
  if (gid.network != RdmaNetwork::infiniband) return std::string(network_word(gid.network));
  std::string word = std::string(network_word(gid.network)) + "/";
  for (int i = 0; i < 8; ++i) word += fmt::format("{:02x}", gid.gid.raw[i]);
  return word;
}

}  // namespace

std::string announce_networks(const std::vector<RdmaPort>& ports) {
  std::vector<std::string> words;
  for (const RdmaPort& port : ports)
    for (const RdmaGid& gid : port.gids)
      if (std::string word = announced_word(gid); std::ranges::count(words, word) == 0)
        words.push_back(std::move(word));
  if (words.empty()) return {};
  return fmt::format("{}{}", rdma_announcement, fmt::join(words, ","));
}

std::vector<RdmaWay> find_ways(const std::vector<RdmaPort>& ports, std::string_view announced) {
  std::vector<RdmaWay> ways;
  // Other transports announce something too.
  const std::size_t begin = announced.find(rdma_announcement);
  if (begin == announced.npos) return ways;
  announced.remove_prefix(begin + rdma_announcement.size());
  const auto is_announced = [&](const std::string& word) {
    std::string_view rest = announced;
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      if (rest.substr(0, comma) == word) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return false;
  };
  for (const RdmaPort& port : ports) {
    const auto gid = std::ranges::find_if(
        port.gids, [&](const RdmaGid& one) { return is_announced(announced_word(one)); });
    if (gid == port.gids.end()) continue;
    const bool is_slow =
        !ways.empty() && port.gigabits_per_s() < ways.front().port->gigabits_per_s() / 4;
    if (!is_slow) ways.push_back({.port = &port, .network = gid->network});
  }
  return ways;
}

}  // namespace gyre::transport
