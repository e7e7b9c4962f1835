// The ports of this end that a connection's rails take. A plan may have ports for it
// (LinkKey::ports). Rails whose planned ports are usable at both ends come first and carry all
// messages; the others are in reserve. Without a plan all rails carry messages.
#pragma once

#include "transports/rdma/address.h"
#include "transports/rdma/ports.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::transport {

// Whether a port ("mlx5_0:1") is near this rank's GPU; null: all are. Where some are, those that
// are far are left out, unless they are planned.
using IsNearPort = std::function<bool(std::string_view port)>;

struct ReceivingPorts {
  std::vector<RdmaWay> ways;        // of each rail: at most `max_rails`
  std::vector<std::string> unused;  // planned ports that it does not take: "mlx5_0:1: down"
};
// For a peer that has announced this.
ReceivingPorts receiving_ports(const RdmaPorts& ports, std::string_view announced,
                               std::span<const std::string> planned,
                               const IsNearPort& judge = nullptr);

struct SendingPorts {
  // For each rail of the receiver's; without a port if the rail is not used. Several rails to one
  // fabric take several ports, if there are.
  std::vector<RdmaWay> ways;
  std::vector<std::string> unused;
};
SendingPorts sending_ports(const RdmaPorts& ports, std::span<const RdmaAddress> there,
                           std::span<const std::string> planned, const IsNearPort& judge = nullptr);

}  // namespace gyre::transport
