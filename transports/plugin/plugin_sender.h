// The sending end of a connection over a plug-in: a private fifo that the executor commits into,
// and the code that cuts its messages into bytes of a stream. A stream begins with a TicketHello,
// whose ticket came in the endpoint; before each message goes a PieceHeader.
#pragma once

#include "lib/transport/mapped.h"
#include "transports/plugin/plugin_calls.h"

#include <array>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace gyre::transport {

// Little-endian. The ticket belongs to one link, so it says the communicator and the channel too.
struct PieceHeader {
  std::uint32_t magic = 0x31504c47;  // "GLP1" in memory
  std::uint32_t bytes = 0;           // of payload, which follows at once
  std::uint64_t sequence = 0;        // of its slot: one more than the message before it
  std::uint64_t signature = 0;       // the slot note's flag
};
static_assert(sizeof(PieceHeader) == 24 && std::has_unique_object_representations_v<PieceHeader>);

class PluginSender final : public Connection {
 public:
  PluginSender(std::int32_t peer, std::shared_ptr<PluginContext> context, PluginHandle handle,
               const trust::Ticket& ticket, std::shared_ptr<FifoMemory> memory);

  bool ready() const override { return hello_sent_ == sizeof hello_; }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override { return flushed_to(committed()); }
  bool flushed_to(std::uint64_t tail) const override {
    return leaving_.head() == tail ? !holds_bytes_ : leaving_.head() > tail;
  }
  bool needs_progress() const override { return true; }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override;
  void arm(WaitSet& set) override;
  void disarm() override {}
  bool same_address_space() const override { return false; }

 private:
  static constexpr std::size_t max_batch = 16;  // messages with one call

  Status advance();
  Status ship();
  Result<std::span<const gyreTransportPart_t>> gather();
  void account(std::size_t bytes);
  void fail(Status status);
  std::uint64_t committed() const;

  const std::int32_t peer_;
  const std::string what_;
  const std::shared_ptr<FifoMemory> memory_;
  SlotReader leaving_;             // the messages that the plug-in has not taken whole
  std::size_t sent_of_first_ = 0;  // bytes of the first, header included, that it has taken
  std::array<PieceHeader, max_batch> headers_;
  std::array<gyreTransportPart_t, 2 * max_batch> parts_{};
  const trust::TicketHello hello_;
  std::size_t hello_sent_ = 0;
  PluginStream stream_;
  bool holds_bytes_ = false;  // taken by the plug-in, which has not passed them on
  Status error_;
};

}  // namespace gyre::transport
