// A fake of UCX that the Sides of Kind::ucx use while it lives.
#pragma once

#include "lib/transport/slots.h"
#include "tests/support/catch.h"
#include "tests/support/fake_ucx/fake_ucp.h"
#include "tests/support/transports/pair_ucp.h"
#include "tests/support/transports/transport_pair.h"

#include <memory>
#include <utility>

namespace gyre::tests {

inline constexpr transport::FifoShape ucx_shape{4, 2, 128 << 10};

struct UcxNetwork {
  explicit UcxNetwork(FakeUcpOptions options = {}) : fake(std::move(options)) {
    use_pair_ucp(&fake.table());
  }
  ~UcxNetwork() { use_pair_ucp(nullptr); }
  FakeUcp fake;
};

inline transport::Listening listen_at(Side& receiving, const Side& sending) {
  auto listening = receiving.transport->listen(
      {.peer = 1, .direction = transport::Direction::receive}, ucx_shape, sending.identity);
  REQUIRE(listening.ok());
  return std::move(*listening);
}

// A link whose receiver listens and whose sender has its endpoint. Nobody has moved anything yet.
struct UnmovedUcxLink {
  UnmovedUcxLink() {
    transport::Listening listening = listen_at(receiving, sending);
    auto connected = sending.transport->connect(
        {.peer = 0, .direction = transport::Direction::send}, ucx_shape, listening.endpoint);
    REQUIRE(connected.ok());
    receiver = std::move(listening.connection);
    sender = std::move(*connected);
  }
  Side receiving{Kind::ucx}, sending{Kind::ucx};
  std::unique_ptr<transport::Connection> receiver, sender;
};

}  // namespace gyre::tests
