// The sending end: a private fifo that the executor commits into, and the code that sends its
// messages from there, or from where the caller of a send lends them. It says who it is first, and
// sends once the receiver has answered.
#pragma once

#include "lib/transport/carrier.h"
#include "transports/ucx/end.h"
#include "transports/ucx/window.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gyre::transport {

// Where the receiver is, how a sender shows that it is meant, and where the receiver answers.
struct UcpTarget {
  UcpPlace receiver;         // its listener's name, if it is on this host
  std::string host_address;  // of its listener, if it is on another one
  trust::Ticket ticket{};
  std::string own_address;
};

class UcpSender final : public UcpEnd, Carrier {
 public:
  // Whether the receiver has said that it will not join.
  using AsksForRefusal = std::function<bool()>;

  static Result<std::unique_ptr<UcpSender>> make(const LinkKey& key,
                                                 std::shared_ptr<UcpEngine> engine,
                                                 std::shared_ptr<UcpPeer> peer,
                                                 std::shared_ptr<FifoMemory> memory,
                                                 UcpTarget target, AsksForRefusal is_refused);
  ~UcpSender() override;

  bool flushed() const override { return flushed_to(committed()); }
  bool flushed_to(std::uint64_t tail) const override;
  // Of links for sends alone: a collective would have to be lent the receiver's memory, too.
  Carrier* carrier() override { return lent_.empty() ? nullptr : this; }

 private:
  // UCX counts a short message as sent when it is in UCX's own buffer (8 KiB, UCX_TCP_TX_SEG_SIZE).
  // It is there no longer once a later message has found room. A longer one is not copied, and has
  // left when UCX counts it as sent. The kernel takes so many bytes at once, and more.
  static constexpr std::uint64_t max_copied_bytes = 8 << 10;
  static constexpr std::uint64_t max_unswept_bytes = 64 << 10;

  UcpSender(const LinkKey& key, std::shared_ptr<UcpEngine> engine, std::shared_ptr<UcpPeer> peer,
            std::shared_ptr<FifoMemory> memory, UcpTarget target, AsksForRefusal is_refused);
  void take(const UcpNotice& notice, const UcpArrival& arrival) noexcept override;
  // UCX reads any memory, and looks after its registration.
  std::shared_ptr<const void> hold(const void* memory, std::uint64_t bytes) noexcept override;
  void cut_off() noexcept override;
  Status turn() override;
  bool needs_no_news() const override;
  Status say_hello();
  Status check_peer();
  Status retire();
  Status ship();
  Status ship_message(const SlotHeader& said);
  Status ship_part(const SlotHeader& said, std::span<const std::byte> part, std::uint64_t offset);
  Result<std::span<const std::byte>> find_bytes(const SlotHeader& said);
  Status ask_for_credit();
  Status sweep();
  void keep_memory();
  std::uint64_t committed() const;

  const UcpTarget target_;
  const AsksForRefusal is_refused_;
  const UcpWindow window_;
  std::vector<LentParts> lent_;  // of each slot's message
  SlotReader leaving_;           // the messages that UCX has not sent whole
  std::uint64_t sent_;           // the next one that UCX is to be given
  // A part of a message: what stands before it, and the request if that needs time.
  struct LeavingPart {
    UcpNotice notice;
    UcpRequest request;
    bool is_last = false;
  };
  LeavingPart& part(std::uint64_t number) { return (*in_flight_)[number % in_flight_->size()]; }
  std::shared_ptr<std::vector<LeavingPart>> in_flight_;  // room for those of all slots
  std::uint64_t parts_sent_ = 0;                         // the next one that UCX is to be given
  std::uint64_t parts_left_ = 0;                         // the first one that UCX has not sent
  std::shared_ptr<UcpNotice> swept_ = std::make_shared<UcpNotice>();
  UcpRequest sweep_;
  std::uint64_t unswept_bytes_ = 0;  // since the last message that shows that all has left
  bool has_said_hello_ = false;
  std::shared_ptr<HostLine> line_;  // if this end has dialed it
  bool has_asked_ = false;          // for credit, since the last one
  // What the receiver has told. Written by whoever holds the engine.
  bool has_credit_ = false;
  std::uint64_t credited_;
  std::uint64_t arrived_ = 0;  // with the closing notice: the messages below have come
  bool has_lied_ = false;
};

}  // namespace gyre::transport
