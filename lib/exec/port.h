// Port: this rank's end of one direction of a link, with the positions that outlive a call. A
// plan's lane uses a port by its link index; no two lanes share one.
#pragma once

#include "lib/exec/slot_pace.h"
#include "lib/transport/carrier.h"
#include "lib/transport/region.h"
#include "lib/transport/transport.h"

#include <memory>

namespace gyre::exec {

struct SendPort {
  int peer = 0;
  int channel = 0;
  bool shares_memory = false;  // both ends see one fifo: lines reach the peer
  // The peer's user memory: by plain address, by mapping its regions, or not at all (null).
  bool same_address_space = false;
  transport::PeerMemory* peer_memory = nullptr;
  bool pulled = false;            // of this call: the receiver reads our input where it lies
  std::uint32_t peers_reach = 0;  // reach_by_...: how the peer has said that it reaches our memory
  // Null: the wire, if there is one, reaches no user memory.
  transport::Carrier* carrier = nullptr;
  std::shared_ptr<const void> input_hold, output_hold;  // of this call: what the wire may read
  std::unique_ptr<transport::Connection> connection;
  // Of both directions of the link; null: slots stay in their fifo.
  std::unique_ptr<transport::SlotPool> pool;
  transport::SlotWriter slots;
  SlotPace pace;
  transport::LineWriter lines;
};

struct ReceivePort {
  int peer = 0;
  int channel = 0;
  bool shares_memory = false;
  bool same_address_space = false;
  // That it maps, or that is read only by copying (`copies`).
  transport::PeerMemory* peer_memory = nullptr;
  bool copies = false;
  transport::Carrier* carrier = nullptr;
  std::unique_ptr<transport::Connection> connection;
  transport::SlotReader slots;
  transport::LineReader lines;
};

// How an end reaches the other one's memory, to tell it.
inline std::uint32_t reach_of(const SendPort& port) {
  return port.peer_memory != nullptr ? transport::reach_by_mapping : 0;
}
inline std::uint32_t reach_of(const ReceivePort& port) {
  const bool maps = port.peer_memory != nullptr && port.peer_memory->maps();
  return (maps ? transport::reach_by_mapping : 0) | (port.copies ? transport::reach_by_copying : 0);
}
// Of a link for sends and receives. In collectives each grant tells it.
inline void tell_reach(const ReceivePort& port) {
  transport::Grant& grant = port.connection->fifo().control->receiver_grant;
  grant.loan = {.reach = reach_of(port)};
  // Pairs with the acquire in told_reach.
  grant.sequence.store(1, std::memory_order_release);
}
// How the receiver has told that it reaches ours; 0 until it has.
inline std::uint32_t told_reach(SendPort& port) {
  const transport::Grant& grant = port.slots.view().control->receiver_grant;
  if (port.peers_reach == 0 && grant.sequence.load(std::memory_order_acquire) != 0)
    port.peers_reach = grant.read().reach;
  return port.peers_reach;
}

// Of one link, whose connections are ready and have carried nothing of this end. Slots change hands
// where both ends see both fifos. A rank has but one fifo with itself.
inline void begin_to_send(SendPort& send, ReceivePort& receive) {
  const transport::FifoView& out = send.connection->fifo();
  const transport::FifoView& in = receive.connection->fifo();
  if (send.shares_memory && receive.shares_memory && out.control != in.control &&
      out.shape.slot_count <= transport::max_pooled_slots)
    send.pool = std::make_unique<transport::SlotPool>(out.slots, in.slots, out.shape.slot_count,
                                                      out.shape.parts());
  send.slots = transport::SlotWriter(out, send.pool.get());
  if (send.pool != nullptr) receive.slots.trade_with(&send.slots);
  send.lines = transport::LineWriter(out);
}

}  // namespace gyre::exec
