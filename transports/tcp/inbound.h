// InboundMessages: the fifo of a receiving tcp connection. Several sockets may bring its messages,
// and the parts of one. So one may be whole before another that comes first. Each goes to the slot
// of its number, or to its place in the memory that is lent for its call. They are committed in
// order.
#pragma once

#include "lib/base/status.h"
#include "lib/transport/carrier.h"
#include "lib/transport/mapped.h"
#include "transports/tcp/wire.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyre::transport {

class InboundMessages {
 public:
  explicit InboundMessages(const FifoView& fifo)
      : fifo_(fifo), out_(fifo), early_(fifo.shape.slot_count) {}

  // Number of the first message that is not committed.
  std::uint64_t next() const { return out_.tail(); }
  // Whether the slot of that message is free. It is none of those before `next`.
  bool has_room(std::uint64_t number) {
    const std::uint64_t ahead = number - out_.tail();
    return ahead < fifo_.shape.slot_count && out_.has_credit(ahead + 1);
  }
  std::uint64_t slot_bytes() const { return fifo_.shape.slot_bytes; }
  // Where the payload goes that follows a header; there is room for its message. An error if it is
  // no part of that message, or came before.
  Result<std::byte*> claim(const WireHeader& header);
  // All of that payload is there.
  void take(const WireHeader& header);

  void lend(const Loan& loan, std::uint64_t call) noexcept {
    loan_ = loan;
    lent_to_ = call;
  }
  void end_loan() noexcept { lent_to_ = 0; }

  // All that was committed has been taken. The head is this process's: it is read where its thread
  // wrote it.
  bool is_drained() const {
    return fifo_.control->head.value.load(std::memory_order_relaxed) == out_.tail();
  }
  // A message has begun to come that is not committed.
  bool has_gap() const { return begun_ > 0; }

 private:
  // A message that has begun to come. Each socket brings a part of it at most.
  struct EarlyMessage {
    std::byte* data = nullptr;  // where it goes; null: it has not begun
    std::uint64_t room = 0;     // there, in bytes
    DeliveryMode delivery{};
    std::uint64_t signature = 0;
    std::uint32_t bytes = 0;   // at least, until its last part has begun
    std::uint32_t landed = 0;  // of these, by parts that are there
    bool has_end = false;      // its last part has begun
    struct Bounds {
      std::uint32_t offset = 0;
      std::uint32_t end = 0;
    };
    std::uint8_t part_count = 0;
    std::array<Bounds, max_rails> parts;  // that have begun

    bool is_whole() const { return data != nullptr && has_end && landed == bytes; }
    bool fits(const WireHeader& part) const;
    void add(const WireHeader& part);
  };
  EarlyMessage& early(std::uint64_t number) {
    return early_[number & (fifo_.shape.slot_count - 1)];
  }
  EarlyMessage begin(const WireHeader& header);
  bool is_for_loan(const WireHeader& header) const;

  const FifoView fifo_;
  SlotWriter out_;
  std::vector<EarlyMessage> early_;  // by slot
  std::uint32_t begun_ = 0;          // of these
  Loan loan_;                        // for the call lent_to_, its sequence + 1; 0: for none
  std::uint64_t lent_to_ = 0;
};

}  // namespace gyre::transport
