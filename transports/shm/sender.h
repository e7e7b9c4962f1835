// The sending end of a fifo whose memory another process made. It asks for the memory at that
// process's listener and maps it. From then on it works like any mapped connection.
#pragma once

#include "lib/transport/endpoint.h"
#include "lib/transport/handover.h"
#include "lib/transport/mapped.h"
#include "lib/transport/transport.h"

#include <memory>

namespace gyre::transport {

// Flag: memory of the fallback. It is believed only where this process would make such memory too:
// a peer's word is no ground to do without seals.
inline constexpr std::uint8_t endpoint_unsealed = 1;

class ShmSender final : public Connection {
 public:
  static Result<std::unique_ptr<Connection>> create(const LinkKey& key,
                                                    const EndpointContents& endpoint);

  bool ready() const override { return is_mapped_; }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override { return true; }
  bool needs_progress() const override { return false; }
  void arm(WaitSet& set) override;
  void disarm() override;
  bool same_address_space() const override { return false; }

 private:
  ShmSender(const LinkKey& key, const EndpointContents& endpoint,
            std::shared_ptr<FifoMemory> reserved);
  Status join();

  const LinkKey key_;
  const bool says_sealed_;
  const std::shared_ptr<FifoMemory> memory_;  // address space only, until mapped
  MemoryRequest request_;
  bool is_mapped_ = false;
  Status error_;
};

}  // namespace gyre::transport
