// Port: this rank's end of one direction of a link, with the positions that outlive a call. A
// plan's lane uses a port by its link index; no two lanes share one.
#pragma once

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
  bool pulled = false;        // of this call: the receiver reads our input where it lies
  bool peer_maps_us = false;  // the peer has said that it can map our regions
  // Null: the wire, if there is one, reaches no user memory.
  transport::Carrier* carrier = nullptr;
  std::shared_ptr<const void> input_hold, output_hold;  // of this call: what the wire may read
  std::unique_ptr<transport::Connection> connection;
  transport::SlotWriter slots;
  transport::LineWriter lines;
};

struct ReceivePort {
  int peer = 0;
  int channel = 0;
  bool shares_memory = false;
  bool same_address_space = false;
  transport::PeerMemory* peer_memory = nullptr;
  transport::Carrier* carrier = nullptr;
  std::unique_ptr<transport::Connection> connection;
  transport::SlotReader slots;
  transport::LineReader lines;
};

}  // namespace gyre::exec
