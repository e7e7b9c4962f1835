// The receiving end: a private fifo, and the code that puts messages into its slots as they come.
// It joins with the sender that shows its ticket, and tells it which slots are free.
#pragma once

#include "lib/transport/mapped.h"
#include "transports/ucx/engine.h"
#include "transports/ucx/local_process.h"
#include "transports/ucx/window.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gyre::transport {

class UcpReceiver final : public Connection, UcpSink {
 public:
  // Tells the sender that nobody will join.
  using Refuse = std::function<void()>;

  // `listener`: of the sender's process, if it is on this host.
  static Result<std::unique_ptr<UcpReceiver>> make(
      const LinkKey& key, std::shared_ptr<UcpEngine> engine, UcpEngine::Distance distance,
      std::shared_ptr<FifoMemory> memory, IssuedTicket ticket, std::string listener, Refuse refuse);
  ~UcpReceiver() override;
  std::uint64_t link() const { return link_; }

  bool ready() const override { return is_ready_; }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override { return true; }
  bool needs_progress() const override { return true; }
  void arm(WaitSet& set) override;
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override;
  bool at_end() const override;
  void disarm() override {}
  bool same_address_space() const override { return false; }

 private:
  enum class Landing : std::uint8_t { nowhere, slot, aside };
  // Of each message that may be on its way, by number.
  struct Coming {
    Landing place = Landing::nowhere;
    std::uint32_t bytes = 0;
    std::uint64_t signature = 0;
    UcpRequest request;  // while it is being fetched
  };
  using ShortMessage = std::array<std::byte, UcpWindow::max_short_bytes>;

  UcpReceiver(const LinkKey& key, std::shared_ptr<UcpEngine> engine, UcpEngine::Distance distance,
              std::shared_ptr<FifoMemory> memory, IssuedTicket ticket, std::string listener,
              Refuse refuse);
  void take(const UcpNotice& notice, const UcpArrival& arrival) noexcept override;
  Status take_in(const UcpNotice& notice, const UcpArrival& arrival);
  Status on_hello(const UcpArrival& arrival);
  Status on_message(const UcpNotice& notice, const UcpArrival& arrival);
  Status on_closing(const UcpNotice& notice);
  Status turn();
  Status join();
  Status await_welcome();
  UcpNotice notice(UcpNoticeKind kind, std::uint64_t number) const;
  Status land();
  Status check_peer() const;
  Status return_credit();
  Status say_closing();
  void fail(Status status);
  bool has_all() const { return is_closed_ && arriving_.tail() == due_; }
  std::uint64_t head() const;
  bool is_closed() const;
  Coming& coming(std::uint64_t number) { return coming_[number & (window_.messages - 1)]; }

  const LinkKey key_;
  const std::shared_ptr<UcpEngine> engine_;
  const UcpEngine::Distance distance_;
  const std::shared_ptr<FifoMemory> memory_;
  const IssuedTicket ticket_;
  const Refuse refuse_;
  LocalProcess process_;  // the sender's
  const UcpWindow window_;
  std::uint64_t link_ = 0;  // of this end
  bool is_ready_ = false;
  // What follows belongs to whoever holds the engine.
  SlotWriter arriving_;
  std::vector<Coming> coming_;
  std::vector<ShortMessage> aside_;  // made for the first that needs it
  std::optional<UcpHello> hello_;
  std::shared_ptr<UcpPeer> peer_;
  const std::shared_ptr<UcpNotice> welcome_ = std::make_shared<UcpNotice>();
  UcpRequest welcoming_;         // while UCX sends that
  std::uint64_t credited_;       // the head that the sender was told last
  std::uint64_t counted_;        // messages below it were looked at, whether they are long
  std::uint32_t long_ones_ = 0;  // of those that the sender was not told of
  bool is_asked_ = false;        // for the next one
  bool is_closed_ = false;
  std::uint64_t due_ = 0;  // with the closing notice: the number of messages
  Status fault_;           // met by who moved the bytes
  Status error_;
};

}  // namespace gyre::transport
