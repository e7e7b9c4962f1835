// The receiving end of a tcp connection: a private fifo, and the rails that fill it.
#pragma once

#include "lib/transport/carrier.h"
#include "lib/transport/mapped.h"
#include "transports/tcp/inbound.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/receiving_rail.h"
#include "transports/tcp/wire.h"

#include <memory>
#include <vector>

namespace gyre::transport {

class TcpReceiver final : public Connection, private Carrier {
 public:
  TcpReceiver(const LinkKey& key, const TransportEnvironment& environment,
              std::shared_ptr<FifoMemory> memory, std::vector<ReceivingRail> rails);

  bool ready() const override { return rails_.ready(); }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override { return true; }
  bool needs_progress() const override { return true; }
  void arm(WaitSet& set) override;
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override {
    return rails_.look_at_peer(now_ns, limit_ns);
  }
  bool at_end() const override { return closed_ && inbound_.is_drained(); }
  void disarm() override {}
  bool same_address_space() const override { return false; }
  Carrier* carrier() override { return this; }

 private:
  // Carrier.
  bool grants() const override { return false; }
  std::shared_ptr<const void> hold(const void*, std::uint64_t) noexcept override { return memory_; }
  void lend(const Loan& loan, std::uint64_t sequence) noexcept override {
    inbound_.lend(loan, sequence);
  }
  void end_loan() noexcept override { inbound_.end_loan(); }
  void cut_off() noexcept override { is_cut_off_ = true; }

  const std::shared_ptr<FifoMemory> memory_;
  InboundMessages inbound_;
  const WireHeader common_;
  Rails<ReceivingRail> rails_;
  bool is_cut_off_ = false;
  bool closed_ = false;  // by the peer, between two messages
};

}  // namespace gyre::transport
