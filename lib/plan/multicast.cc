#include "lib/plan/multicast.h"

namespace gyre::plan {

bool takes_from_all(const Lane& lane, const Move& move) {
  return lane.leads_to_all && move.recv.count > 0 && move.recv.count == lane.link_count &&
         move.step->local == Buffer::input;
}

bool sends_to_all(const Lane& lane, const Move& move) {
  return lane.leads_to_all && move.send.count > 0 && move.send.count == lane.link_count &&
         move.step->store == Buffer::output && delivery(*move.step) == Delivery::push;
}

std::vector<WireLoad> wire_loads(const Timeline& timeline, std::int32_t rank_count,
                                 bool multicast) {
  std::vector<WireLoad> loads(static_cast<std::size_t>(rank_count));
  for (const Flight& flight : timeline.flights) {
    if (flight.from == flight.to) continue;
    WireLoad& from = loads[static_cast<std::size_t>(flight.from)];
    WireLoad& to = loads[static_cast<std::size_t>(flight.to)];
    const bool summed = multicast && flight.summed, spread = multicast && flight.spread;
    if (!spread || flight.first_sent) from.sent += flight.bytes;
    if (!summed || flight.first_received) to.received += flight.bytes;
    // The own part, to the switch and back.
    if (spread && flight.first_sent) from.received += flight.bytes, ++from.switch_moves;
    if (summed && flight.first_received) to.sent += flight.bytes, ++to.switch_moves;
  }
  return loads;
}

}  // namespace gyre::plan
