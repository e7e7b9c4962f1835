// The sending end of a tcp connection: a private fifo that the executor commits into, and the rails
// over which committed messages leave. Messages may lie in memory that callers lend: the kernel
// takes them from there.
//
// A rail takes the next messages when the kernel has those before (dealer.h). A slot is free again
// once its message and all before it have left.
#pragma once

#include "lib/transport/carrier.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "transports/tcp/dealer.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/sending_rail.h"
#include "transports/tcp/wire.h"

#include <memory>
#include <vector>

namespace gyre::transport {

class TcpSender final : public Connection, private Carrier {
 public:
  TcpSender(const LinkKey& key, const TransportEnvironment& environment,
            std::shared_ptr<FifoMemory> memory, std::vector<SendingRail> rails);

  bool ready() const override { return rails_.ready(); }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override;
  bool flushed_to(std::uint64_t tail) const override;
  bool needs_progress() const override { return true; }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override {
    return rails_.look_at_peer(now_ns, limit_ns);
  }
  bool met_silence() const override;
  void arm(WaitSet& set) override;
  void disarm() override {}
  bool same_address_space() const override { return false; }
  Carrier* carrier() override { return this; }

 private:
  // Carrier. The kernel copies what it takes: any memory will do, and nothing is kept of it.
  bool grants() const override { return false; }
  std::shared_ptr<const void> hold(const void*, std::uint64_t) noexcept override { return memory_; }
  void cut_off() noexcept override { is_cut_off_ = true; }

  void release_sent();
  bool holds_bytes() const;

  const std::shared_ptr<FifoMemory> memory_;
  std::vector<LentParts> lent_;  // by slot; the executor writes it
  bool is_cut_off_ = false;
  SlotReader leaving_;  // the messages that the kernel has not taken whole
  Dealer dealer_;
  const WireHeader common_;
  Rails<SendingRail> rails_;
};

}  // namespace gyre::transport
