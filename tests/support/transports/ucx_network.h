// A fake of UCX that the Sides of Kind::ucx use while it lives.
#pragma once

#include "lib/transport/slots.h"
#include "tests/support/fake_ucx/fake_ucp.h"
#include "tests/support/transports/pair_ucp.h"

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

}  // namespace gyre::tests
