// RdmaAddress: where one end of a connection is, for the other end: its port, its queue pairs, and
// the memory that the other end may write, with keys. It travels over the encrypted control plane
// alone: the receiver's in its endpoint, the sender's in its answer. Both are checked when read.
#pragma once

#include "lib/trust/tickets.h"
#include "transports/rdma/ports.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::transport {

inline constexpr std::size_t max_queue_pairs = 16;  // of a rail
inline constexpr std::size_t max_rails = 4;         // ports side by side
inline constexpr std::uint32_t max_window = 1 << 17;

struct QueuePairNumbers {
  std::uint32_t pair = 0;          // 24 bits
  std::uint32_t first_packet = 0;  // 24 bits
  friend bool operator==(const QueuePairNumbers&, const QueuePairNumbers&) = default;
};

struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  friend bool operator==(const RemoteMemory&, const RemoteMemory&) = default;
};

struct RdmaAddress {
  RdmaNetwork network = RdmaNetwork::infiniband;
  std::uint8_t mtu = IBV_MTU_1024;  // ibv_mtu
  std::uint16_t lid = 0;            // of InfiniBand
  std::uint8_t planned = 0;         // of a receiver; see RdmaWay
  ibv_gid gid{};
  std::uint32_t window = 0;  // of a receiver: messages that may be on their way, a power of two
  RemoteMemory slots{};      // of a receiver
  RemoteMemory notes{};      // of a receiver: their ring; of a sender: where grants go
  RemoteMemory probed{};     // where empty writes show whether this end's NIC answers
  std::vector<QueuePairNumbers> pairs{};
  std::string place{};  // "mlx5_0:1 of host a", for people; at most 60 bytes
};

std::vector<std::uint8_t> encode(const RdmaAddress& address);  // at most 255 bytes
std::optional<RdmaAddress> decode_rdma_address(std::span<const std::uint8_t> bytes);

// What a sender tells the receiver, with the ticket of the endpoint that it has connected to: where
// each rail of the endpoint leads; nothing for those that it does not use.
struct RdmaAnswer {
  trust::Ticket ticket{};
  std::vector<std::optional<RdmaAddress>> rails;
};
std::vector<std::uint8_t> encode(const RdmaAnswer& answer);
std::optional<RdmaAnswer> decode_rdma_answer(std::span<const std::uint8_t> bytes);

}  // namespace gyre::transport
