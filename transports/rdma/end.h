// RdmaEnd: what the sending and the receiving end of a connection are alike. Each has a private
// fifo, a ring of notes of the messages in it, and a link with the peer. An error is for good.
#pragma once

#include "lib/transport/mapped.h"
#include "lib/transport/transport.h"
#include "transports/rdma/link.h"

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::transport {

class RdmaEnd : public Connection, protected CompletionTaker {
 public:
  const FifoView& fifo() const final { return memory_->view; }
  Status progress() final;
  bool needs_progress() const final { return true; }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) final;
  void arm(WaitSet& set) override;
  void disarm() final {}
  bool same_address_space() const final { return false; }

 protected:
  RdmaEnd(std::shared_ptr<FifoMemory> memory, std::vector<RdmaRail> rails,
          std::shared_ptr<RdmaFarewell> farewell, std::string_view toward, int peer)
      : memory_(std::move(memory)),
        link_(*this, std::move(rails), std::move(farewell), toward, peer) {}
  // Makes so many places for notes, and lets the NIC of each rail in use reach them and the slots.
  Status register_memory(std::size_t notes, int access);
  // What can be done now. It does not block.
  virtual Status turn() = 0;
  void fail(Status status) { error_ = link_.broken(std::move(status)); }

  const std::shared_ptr<FifoMemory> memory_;
  Mapping notes_;  // NotePlaces, a ring
  RdmaLink link_;
  Status error_;
};

}  // namespace gyre::transport
