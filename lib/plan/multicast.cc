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

}  // namespace gyre::plan
