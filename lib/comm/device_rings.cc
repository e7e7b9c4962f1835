// The rings of a communicator on GPUs: from the machines of its hosts, all ranks find the same.
#include "lib/base/log.h"
#include "lib/comm/device_backend.h"
#include "lib/topology/channel_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace gyre::comm {
namespace {

// There is one ring over fewer ranks.
constexpr int min_ranks = 3;

static_assert(topology::max_gpu_channels == cuda::max_channels);

// With the command that finds the same, if the ranks are on all GPUs of equal hosts.
void log_rings(const topology::Cluster& cluster, const topology::FoundChannels& found,
               int max_channels) {
  log_info(Subsystem::graph,
           "channels take rings over the links of {} hosts instead, at most {} (gyre topo --rings "
           "--hosts {} --channels {}): {}",
           cluster.hosts.size(), max_channels, cluster.hosts.size(), max_channels,
           reason_text(found));
  for (const std::string& line : channel_lines(cluster, found))
    log_info(Subsystem::graph, "{}", line);
}

}  // namespace

// For the message that this rank joins with; empty if nothing is known, or nothing depends on it.
Result<std::string> DeviceBackend::note_machine(const loaded::Nvml* nvml) {
  const std::string& file = state_.options.settings.topology_file;
  if (state_.size < min_ranks || (nvml == nullptr && file.empty())) return std::string();
  GYRE_ASSIGN(const topology::Topology* const machine, services_.machine.find(file, nvml));
  Result<OutlinedMachine> outlined = outline_machine(*machine);
  if (!outlined.ok()) {
    log_info(Subsystem::graph, "this host's links are not told to other ranks: {}",
             outlined.status().message());
    return std::string();
  }
  machine_ = std::move(outlined).value();
  return encode(machine_->note);
}

Status DeviceBackend::ask_for_machines() {
  if (state_.size < min_ranks) return {};
  machines_ = std::make_unique<MachineExchange>(host_->layout(), *state_.membership, state_.rank,
                                                std::move(machine_),
                                                state_.options.settings.init_timeout_s * ns_per_s);
  return machines_->begin();
}

// What one rank finds, all find, and what one does not find, none does: then rings stay in the
// layout's order.
Result<bool> DeviceBackend::follow_rings() {
  if (machines_ == nullptr) return true;
  GYRE_ASSIGN(const bool is_here, machines_->advance());
  if (!is_here) return false;
  const Result<topology::Cluster> cluster = machines_->cluster();
  const int max_channels = static_cast<int>(resources_->channels());
  const auto found = cluster.ok()
                         ? services_.rings.find(*cluster, max_channels)
                         : Result<std::shared_ptr<const topology::FoundChannels>>(cluster.status());
  if (found.ok()) host_->plans().follow(ring_orders(**found));
  if (found.ok()) follow_ports(ring_ports(*cluster, **found, state_.rank));
  machines_.reset();
  if (state_.rank != 0) return true;
  if (found.ok())
    log_rings(*cluster, **found, max_channels);
  else
    log_info(Subsystem::graph, "all rings take one order: {}", found.status().message());
  return true;
}

void DeviceBackend::follow_ports(PortsByPeer ports) {
  for (const auto& [peer, planned] : ports)
    log_info(Subsystem::graph, "rings are planned to cross to rank {} by {}, and from it by {}",
             peer, fmt::join(planned.out, ", "), fmt::join(planned.in, ", "));
  if (DeviceRelays* const relays = resources_->links().relays()) relays->follow(std::move(ports));
}

}  // namespace gyre::comm
