// The transports of this build, best first, one row each. The values of GYRE_TRANSPORT, the help,
// the errors about it, and the makers of connections all follow from the rows.
// docs/contributing/add-a-transport.md says how to add one.
#pragma once

#include "lib/base/settings.h"
#include "lib/topology/transport_path.h"
#include "lib/transport/transport.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::transport {
struct Plugin;
}

namespace gyre::comm {

using transport::TransportList;

struct TransportRow {
  std::string_view name;
  std::string_view reaches;  // for people: whom
  // NCCL's name for it, as a transport between hosts; empty: it is none.
  std::string_view between_hosts = {};
  // Null where kernels move the bytes and there are no slots: GPUs choose among their ways for each
  // pair of ranks, and say why (transports/p2p/gpu_route.h).
  std::unique_ptr<transport::Transport> (*make)(const transport::TransportEnvironment&) = nullptr;
  bool needs_no_naming = false;  // a list of others does not leave it out; ^ with its name may
  bool needs_naming = false;     // only a list with its name has it
  bool Settings::*disabled = nullptr;                   // another variable that leaves it out
  std::string_view disabled_by = {};                    // its name
  topology::Medium medium = topology::Medium::sockets;  // what its bytes go through
  const transport::Plugin* plugin = nullptr;            // in place of `make`; its medium is unknown
};
// Those of this build; plug-ins that settings name come behind them.
std::span<const TransportRow> transport_registry();
// Of a transport that is there, plug-ins among them.
TransportRow transport_row(std::string_view name);
// "self, p2p, shm, rdma, tcp"
std::string transport_choices();

// Whether the settings allow that transport, which is there. An error where GYRE_TRANSPORT names
// one that is not.
Result<bool> is_transport_allowed(std::string_view name, const Settings& settings);

// The value of GYRE_TRANSPORT that leaves one transport between hosts, by our name or NCCL's.
Result<std::string> alone_between_hosts(std::string_view name);

// Those that the settings allow, in the order of GYRE_TRANSPORT; what it does not name comes first.
// Plug-ins of GYRE_TRANSPORT_PLUGIN are loaded.
Result<std::vector<TransportRow>> allowed_transports(const Settings& settings);

// Those of them with slots, in the order of GYRE_TRANSPORT. It travels in
// endpoints, so it has to be the same on all ranks; init compares it.
Result<TransportList> make_transports(const Settings& settings,
                                      const transport::TransportEnvironment& environment);
std::string transport_names(const TransportList& transports);
// Whether one of them may share slots with other processes of this host.
bool has_shared_memory(const TransportList& transports);

// Whether a process that announces this (Transport::announcement) has wires that may reach memory
// which callers lend (transport::Carrier). All ranks know all announcements, and agree on it.
bool may_carry_loans(std::string_view announcement);
// Whether it has UCX, which somebody has named then.
bool may_go_by_ucx(std::string_view announcement);

}  // namespace gyre::comm
