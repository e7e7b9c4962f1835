// Ports of this machine's verbs devices, and which of them are used: the fastest that is active and
// that the settings allow. Also the choice of a port's GID, by its type and address: the index of a
// GID changes with the order in which addresses were given.
#pragma once

#include "lib/loaded/shared_verbs.h"
#include "lib/loaded/verbs_device.h"
#include "lib/transport/transport.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::transport {

// The network that a GID belongs to. Two ends must have the same.
enum class RdmaNetwork : std::uint8_t { infiniband, roce_ipv4, roce_ipv6, roce_link_local };
inline constexpr int rdma_network_count = 4;
std::string_view network_word(RdmaNetwork network);  // "roce4"
std::string_view network_text(RdmaNetwork network);  // "RoCE v2, IPv4"
std::string gid_text(const ibv_gid& gid);            // "10.0.0.1", "fd00::1"

struct RdmaGid {
  ibv_gid gid{};
  std::uint8_t index = 0;
  RdmaNetwork network = RdmaNetwork::infiniband;
};

// Whether ports with these GIDs reach each other: on InfiniBand, if they are in one subnet.
bool is_one_fabric(const RdmaGid& one, const RdmaGid& other);

struct RdmaPort {
  std::shared_ptr<loaded::VerbsDevice> device;
  std::uint8_t number = 1;
  ibv_port_attr attributes{};
  std::vector<RdmaGid> gids{};  // best first, one for each network

  std::string name() const;  // "mlx5_0:1", as topology::port_name has it
  double gigabits_per_s() const;
  const RdmaGid* on(RdmaNetwork network) const;
};

struct RdmaPorts {
  std::vector<RdmaPort> usable;      // best first
  std::vector<std::string> skipped;  // why not the others, one text each
};

// An error if the settings name what is not there, or if a device does not answer.
Result<RdmaPorts> find_rdma_ports(loaded::SharedVerbs& shared, const RdmaOptions& options);

// Whether GYRE_IB_HCA's value admits a port; an error says what is wrong with the value.
Result<bool> hca_matches(std::string_view setting, std::string_view device, int port);

// The networks of the usable ports, as peers are told: "rdma=roce4,roce6". InfiniBand's has the
// subnet: "ib/fe80000000000000".
std::string announce_networks(const std::vector<RdmaPort>& ports);
// The ports with a network that a peer has announced as well, best first: each at its best network,
// and none that is slower than a quarter of the first.
struct RdmaWay {
  const RdmaPort* port = nullptr;
  RdmaNetwork network = RdmaNetwork::infiniband;
  // 1 + the place of the port among those that are planned (LinkKey::ports); 0: it is not.
  std::uint8_t planned = 0;
};
std::vector<RdmaWay> find_ways(const std::vector<RdmaPort>& ports, std::string_view announced);

}  // namespace gyre::transport
