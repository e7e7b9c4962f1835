// What peers and the environment say about RDMA: addresses and answers, announced networks,
// GYRE_IB_HCA. Input: u8 which, then its bytes.
#include "tests/fuzz/input.h"
#include "transports/rdma/address.h"

#include <string>
#include <string_view>

namespace rdma_address_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

void check_address(std::span<const std::uint8_t> bytes) {
  const auto address = decode_rdma_address(bytes);
  if (!address) return;
  GYRE_DEMAND(!address->pairs.empty() && address->pairs.size() <= max_queue_pairs);
  GYRE_DEMAND(address->mtu >= IBV_MTU_256 && address->mtu <= IBV_MTU_4096);
  const auto again = encode(*address);
  GYRE_DEMAND(again.size() == bytes.size() && again.size() <= 255);
  const auto copy = decode_rdma_address(again);
  GYRE_DEMAND(copy.has_value() && encode(*copy) == again);
}

void check_answer(std::span<const std::uint8_t> bytes) {
  const auto answer = decode_rdma_answer(bytes);
  if (!answer) return;
  const auto copy = decode_rdma_answer(encode(*answer));
  GYRE_DEMAND(answer->rails.size() <= max_rails);
  GYRE_DEMAND(copy.has_value() && copy->ticket == answer->ticket);
  GYRE_DEMAND(copy->rails.size() == answer->rails.size());
}

// Ports of each network.
const std::vector<RdmaPort>& some_ports() {
  static const std::vector<RdmaPort> ports = [] {
    std::vector<RdmaPort> made;
    for (int network = 0; network < rdma_network_count; ++network) {
      RdmaPort& port = made.emplace_back();
      port.number = static_cast<std::uint8_t>(network + 1);
      port.gids.push_back({{}, 0, static_cast<RdmaNetwork>(network)});
    }
    return made;
  }();
  return ports;
}

void check_announced(std::string_view text) {
  for (const RdmaWay& way : find_ways(some_ports(), text)) {
    GYRE_DEMAND(way.port->on(way.network) != nullptr);
    GYRE_DEMAND(text.find(network_word(way.network)) != text.npos);
  }
}

void check_hca(std::string_view text) {
  for (const int port : {1, 2}) {
    const auto matches = hca_matches(text, "mlx5_0", port);
    if (!matches.ok()) GYRE_DEMAND(matches.status().code() == Code::InvalidUsage);
    if (text.empty()) GYRE_DEMAND(*matches);
    // What is left out by a text is not admitted by it.
    const auto others = hca_matches("^" + std::string(text), "mlx5_0", port);
    if (!text.starts_with('^') && !text.empty() && matches.ok())
      GYRE_DEMAND(others.ok() && *others != *matches);
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t which = input.take<std::uint8_t>() % 4;
  const auto rest = input.rest();
  const std::string text(rest.begin(), rest.end());
  if (which == 0) check_address(rest);
  if (which == 1) check_answer(rest);
  if (which == 2) check_announced(text);
  if (which == 3) check_hca(text);
  return 0;
}

GYRE_FUZZ_TARGET(rdma_address)

}  // namespace rdma_address_fuzz
