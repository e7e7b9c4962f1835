#include "tests/support/transports/pair_ucp.h"

#include "tests/support/fake_ucx/fake_ucp.h"

#include <cstdlib>

namespace gyre::tests {
namespace {

const loaded::Ucp* wanted_ucp = nullptr;

loaded::SharedUcp& ucp_of_pairs() {
  static loaded::SharedUcp& shared = *new loaded::SharedUcp;
  return shared;
}

}  // namespace

loaded::SharedUcp* pair_ucp() {
  if (wanted_ucp == nullptr) {
    static const FakeUcp& own = *new FakeUcp;
    use_pair_ucp(&own.table());
  }
  return &ucp_of_pairs();
}

void use_pair_ucp(const loaded::Ucp* table) {
  wanted_ucp = table;
  ucp_of_pairs().use(table);
}

// UCX reads its settings from the environment as the context is made. Those of the program's user
// stand.
loaded::SharedUcp* machine_ucp(MachineUcx way) {
  static loaded::SharedUcp& by_memory = *new loaded::SharedUcp;
  static loaded::SharedUcp& by_tcp = *new loaded::SharedUcp;
  const bool is_tcp = way == MachineUcx::tcp;
  static const bool is_set = std::getenv("UCX_TLS") != nullptr;
  if (is_set) return is_tcp ? &by_tcp : &by_memory;
  setenv("UCX_TLS", is_tcp ? "tcp" : "posix,self", 1);
  setenv("UCX_NET_DEVICES", "lo", 1);
  return is_tcp ? &by_tcp : &by_memory;
}

}  // namespace gyre::tests
