// Network ports, as the kernel's files show them: interfaces (/sys/class/net) and ports of verbs
// devices (/sys/class/infiniband). Nothing is opened, so a user without rights sees as much.
#include "lib/topology/discover.h"
#include "lib/topology/speeds.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

namespace gyre::topology {
namespace {

namespace fs = std::filesystem;

// ARPHRD_ETHER, ARPHRD_INFINIBAND, ARPHRD_LOOPBACK of if_arp.h.
constexpr int ethernet_type = 1, infiniband_type = 32, loopback_type = 772;

// The first line; empty where the file is not there, or says nothing, as `speed` of a port that is
// down.
std::string read_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

template <typename Number>
Number number_in(std::string_view text, Number missing) {
  Number value = missing;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  return error == std::errc() ? value : missing;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  std::ranges::sort(names);
  return names;
}

bool is_bus_id(std::string_view name) {  // "0000:3b:00.0"
  return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
         name[name.size() - 8] == ':';
}

// Of the PCI device behind a device, by where it is in the tree of devices; empty if there is none.
std::string bus_id_behind(const fs::path& device) {
  std::error_code error;
  const fs::path place = fs::canonical(device, error);
  std::string found;
  if (error) return found;
  for (const fs::path& part : place)
    if (is_bus_id(part.native())) found = part.native();
  return found;
}

class PortFinder {
 public:
  PortFinder(Topology& topology, std::string sysfs)
      : topology_(topology), sysfs_(std::move(sysfs)) {}

  void find_interfaces() {
    for (const std::string& name : names_in(sysfs_ / "class/net")) {
      const fs::path folder = sysfs_ / "class/net" / name;
      TopologyNode& port = port_named(name, 1, folder / "device");
      PortTraits& traits = *port.port;
      const int type = number_in(read_line(folder / "type"), 0);
      traits.is_loopback = type == loopback_type;
      traits.protocol = type == ethernet_type     ? PortProtocol::ethernet
                        : type == infiniband_type ? PortProtocol::infiniband
                                                  : PortProtocol::unknown;
      traits.mtu = number_in(read_line(folder / "mtu"), 0);
      const std::string state = read_line(folder / "operstate");
      if (state.empty())
        topology_.missed.push_back(
            fmt::format("whether port {} is up: the kernel's files of it are hidden", name));
      traits.is_up = state == "up" || (state == "unknown" && read_line(folder / "carrier") == "1");
      port.gigabytes_per_s =
          std::max(0.0, number_in(read_line(folder / "speed"), -1.0) / megabits_per_gigabyte);
    }
  }

  void find_verbs() {
    for (const std::string& name : names_in(sysfs_ / "class/infiniband")) {
      const fs::path folder = sysfs_ / "class/infiniband" / name;
      for (const std::string& number : names_in(folder / "ports")) {
        TopologyNode& port = port_named(name, number_in(number, 1), folder / "device");
        PortTraits& traits = *port.port;
        const fs::path place = folder / "ports" / number;
        traits.has_verbs = true;
        traits.protocol = read_line(place / "link_layer") == "InfiniBand" ? PortProtocol::infiniband
                                                                          : PortProtocol::ethernet;
        traits.is_up = read_line(place / "state").starts_with("4:");  // "4: ACTIVE"
        traits.guid = read_line(folder / "node_guid");
        // "100 Gb/sec (4X EDR)"
        port.gigabytes_per_s =
            std::max(0.0, number_in(read_line(place / "rate"), 0.0) / gigabits_per_gigabyte);
      }
    }
  }

 private:
  // The port of that name, made where it is not there yet. Valid until the next call.
  TopologyNode& port_named(const std::string& name, int number, const fs::path& device) {
    const auto is_it = [&](const TopologyNode& node) {
      return node.kind == NodeKind::port && node.name == name && node.port->number == number;
    };
    const auto known = std::ranges::find_if(topology_.nodes, is_it);
    if (known != topology_.nodes.end()) return *known;
    TopologyNode port;
    port.kind = NodeKind::port;
    port.name = name;
    port.port.emplace();
    port.port->number = number;
    std::error_code hidden;
    port.port->is_virtual = !fs::exists(device, hidden);
    port.parent = port.port->is_virtual ? 0 : nic_behind(device);
    return topology_.nodes[static_cast<std::size_t>(topology_.add(std::move(port)))];
  }

  int nic_behind(const fs::path& device) {
    const std::string bus_id = bus_id_behind(device);
    const int known = topology_.find_bus_id(bus_id);
    if (known >= 0 && topology_.node(known).kind == NodeKind::nic) return known;
    TopologyNode nic;
    nic.kind = NodeKind::nic;
    nic.parent = 0;
    if (known < 0) nic.bus_id = bus_id;
    return topology_.add(std::move(nic));
  }

  Topology& topology_;
  const fs::path sysfs_;
};

}  // namespace

void add_ports(Topology& topology, const std::string& sysfs) {
  std::error_code hidden;
  if (!fs::exists(fs::path(sysfs) / "class/net", hidden))
    topology.missed.push_back(fmt::format("network interfaces: {}/class/net is not there", sysfs));
  PortFinder finder(topology, sysfs);
  finder.find_interfaces();
  finder.find_verbs();
}

}  // namespace gyre::topology
