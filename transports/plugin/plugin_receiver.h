// The receiving end of a connection over a plug-in. It accepts streams until one shows the ticket
// of its endpoint, then reads each message into the next free slot of a private fifo. It reads
// nothing while no slot is free.
#pragma once

#include "transports/plugin/plugin_sender.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace gyre::transport {

class PluginReceiver final : public Connection {
 public:
  PluginReceiver(std::int32_t peer, std::shared_ptr<PluginContext> context, PluginListener listener,
                 const trust::Ticket& ticket, std::shared_ptr<FifoMemory> memory);

  bool ready() const override { return stream_.has_value(); }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override { return true; }
  bool needs_progress() const override { return true; }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override;
  bool at_end() const override { return closed_ && is_drained(); }
  void arm(WaitSet& set) override;
  void disarm() override {}
  bool same_address_space() const override { return false; }

 private:
  // Streams that have not shown a ticket yet; when one more comes, the oldest has had its time.
  static constexpr std::size_t max_newcomers = 8;
  struct Newcomer {
    PluginStream stream;
    trust::TicketHello hello{};
    std::size_t bytes = 0;
  };

  Status join();
  // Whether all of its hello is here and right, or may yet be.
  enum class Showing : std::uint8_t { not_yet, right, wrong };
  Showing look_at(Newcomer& newcomer) const;
  Status land();
  Status take_header();
  bool is_whole() const { return has_header_ && landed_ == header_.bytes; }
  Status note_closing();
  bool is_drained() const {
    const auto& head = memory_->view.control->head.value;
    return head.load(std::memory_order_relaxed) == arriving_.tail();
  }
  void fail(Status status);

  const std::int32_t peer_;
  const std::string what_;
  const std::shared_ptr<FifoMemory> memory_;
  const std::shared_ptr<PluginContext> context_;
  const trust::Ticket ticket_;
  PluginListener listener_;
  std::deque<Newcomer> newcomers_;
  std::optional<PluginStream> stream_;
  SlotWriter arriving_;
  PieceHeader header_;  // of the message at hand
  bool has_header_ = false;
  std::size_t landed_ = 0;  // bytes of its payload in its slot
  PieceHeader next_;        // the one behind it, as far as it has come
  std::size_t next_bytes_ = 0;
  bool closed_ = false;  // by the peer, between two messages
  Status error_;
};

}  // namespace gyre::transport
