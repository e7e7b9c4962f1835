// The identity that a process sends when it joins, and the transports' use of it.
#include "lib/control/cause.h"
#include "lib/trust/identity.h"
#include "tests/fuzz/input.h"
#include "transports/self/self.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

#include <algorithm>

namespace identity_fuzz {

using namespace gyre;

namespace {

trust::ProcessIdentity this_process() {
  trust::ProcessIdentity self;
  self.process.fill(0x11);
  self.host.fill(0x22);
  self.net_namespace = 33;
  self.uid = 44;
  return self;
}

void judge_reach(const trust::ProcessIdentity& peer) {
  const trust::ProcessIdentity self = this_process();
  trust::TicketBook tickets;
  const transport::TransportEnvironment environment{.self = self, .tickets = tickets};
  const Reachability itself = transport::make_self_transport(environment)->reach(peer);
  const Reachability memory = transport::make_shm_transport(environment)->reach(peer);
  const Reachability network = transport::make_tcp_transport(environment)->reach(peer);
  GYRE_DEMAND(itself.reachable == (peer.process == self.process));
  GYRE_DEMAND(!memory.reachable || peer.process == self.process ||
              (peer.host == self.host && peer.uid == self.uid));
  GYRE_DEMAND(network.reachable == !peer.addresses.empty());
  for (const Reachability* reach : {&itself, &memory, &network})
    GYRE_DEMAND(!reach->reason.empty());
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::uint8_t> bytes(data, data + size);
  const auto identity = trust::decode_identity(bytes);
  if (!identity.ok()) return 0;
  GYRE_DEMAND(identity->addresses.size() <= 8);
  GYRE_DEMAND(identity->host_name.size() <= 256 && identity->listener_name.size() <= 256);
  GYRE_DEMAND(fuzz::is_one_line(control::process_text({1}, *identity)));
  const auto copy = trust::decode_identity(trust::encode(*identity));
  GYRE_DEMAND(copy.ok() && trust::encode(*copy) == trust::encode(*identity));
  judge_reach(*identity);
  return 0;
}

GYRE_FUZZ_TARGET(identity)

}  // namespace identity_fuzz
