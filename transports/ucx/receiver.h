// The receiving end: a private fifo, and the code that puts messages into its slots as they come.
// It joins with the sender that shows its ticket, and tells it which slots are free.
#pragma once

#include "transports/ucx/end.h"
#include "transports/ucx/window.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gyre::transport {

class UcpReceiver final : public UcpEnd {
 public:
  // Tells the sender that nobody will join.
  using Refuse = std::function<void()>;

  // `listener`: of the sender's process, if it is on this host. `line`: what the sender may dial.
  static Result<std::unique_ptr<UcpReceiver>> make(
      const LinkKey& key, std::shared_ptr<UcpEngine> engine, UcpEngine::Distance distance,
      std::shared_ptr<FifoMemory> memory, IssuedTicket ticket, std::shared_ptr<HostLine> line,
      std::string listener, Refuse refuse);
  ~UcpReceiver() override;
  bool flushed() const override { return true; }
  void arm(WaitSet& set) override;
  bool at_end() const override;

 private:
  enum class Landing : std::uint8_t { nowhere, slot, aside };
  // Of each message that may be on its way, by number.
  struct Coming {
    Landing place = Landing::nowhere;
    std::uint32_t bytes = 0;
    std::uint64_t signature = 0;
    std::uint32_t landed = 0;  // bytes of parts that are here
    UcpRequest request;        // while it is being fetched
  };

  UcpReceiver(const LinkKey& key, std::shared_ptr<UcpEngine> engine, UcpEngine::Distance distance,
              std::shared_ptr<FifoMemory> memory, IssuedTicket ticket,
              std::shared_ptr<HostLine> line, std::string listener, Refuse refuse);
  void take(const UcpNotice& notice, const UcpArrival& arrival) noexcept override;
  Status take_in(const UcpNotice& notice, const UcpArrival& arrival);
  Status on_hello(const UcpArrival& arrival);
  Status on_message(const UcpNotice& notice, const UcpArrival& arrival);
  Status check_message(const UcpNotice& notice, const UcpArrival& arrival) const;
  Status begin_or_check(const UcpNotice& notice, std::size_t bytes, Coming& message);
  std::byte* place_of(std::uint64_t number, const Coming& message);
  Status on_closing(const UcpNotice& notice);
  Status turn() override;
  Status join();
  Status await_welcome();
  Status land();
  Status check_peer() const;
  Status return_credit();
  Status say_closing();
  bool has_all() const { return is_closed_ && arriving_.tail() == due_; }
  std::uint64_t head() const;
  Coming& coming(std::uint64_t number) { return coming_[number & (window_.messages - 1)]; }

  const UcpEngine::Distance distance_;
  const IssuedTicket ticket_;
  const std::shared_ptr<HostLine> line_;
  const Refuse refuse_;
  const UcpWindow window_;
  // What follows belongs to whoever holds the engine.
  SlotWriter arriving_;
  std::vector<Coming> coming_;
  std::vector<std::vector<std::byte>> aside_;  // by number; made for the first that needs it
  std::optional<UcpHello> hello_;
  const std::shared_ptr<UcpNotice> welcome_ = std::make_shared<UcpNotice>();
  UcpRequest welcoming_;         // while UCX sends that
  std::uint64_t credited_;       // the head that the sender was told last
  std::uint64_t counted_;        // messages below it were looked at, whether they are long
  std::uint32_t long_ones_ = 0;  // of those that the sender was not told of
  bool is_asked_ = false;        // for the next one
  std::uint64_t due_ = 0;        // with the closing notice: the number of messages
  Status fault_;                 // met by who moved the bytes
};

}  // namespace gyre::transport
