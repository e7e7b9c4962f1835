// Outbox: this rank's messages to one peer, sent in the order in which they were begun. A wire that
// reaches the caller's memory takes long ones from there, and so does a process of this host. The
// rest is copied into slots.
#pragma once

#include "lib/exec/port.h"
#include "lib/sendrecv/batch.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

namespace gyre::comm {

class Outbox {
 public:
  // What this process has allocated for peers to map; outlives it.
  explicit Outbox(const transport::RegionTable& regions) : regions_(regions) {}

  void add(const PendingTransfer& send) { open_.push_back(send); }
  // All have left this process.
  bool is_empty() const { return open_.empty() && leaving_.empty(); }
  // Whether the peer has yet to copy the first of them.
  bool lends() const { return lent_until_.has_value(); }
  // All are in lines and slots.
  bool is_shipped() const { return open_.empty(); }
  // Whether the next part finds room.
  bool has_room(exec::SendPort& port) const;
  // Puts into lines and slots what finds room there, and lets go of what has left.
  Status advance(exec::SendPort& port, bool& moved);
  // An error has ended its batch. Whether the peer or the wire may still read what a caller of it
  // lends: then it is to be recalled.
  [[nodiscard]] bool forget(const Batch& batch);
  static void recall(exec::SendPort& port);

 private:
  struct TransferInFlight {
    std::uint64_t tail;  // of its last slot
    Batch* batch;
    std::shared_ptr<const void> held;  // what the wire reads
  };
  void ship(exec::SendPort& port, bool& moved);
  void ship_lines(exec::SendPort& port);
  void ship_slot(exec::SendPort& port);
  transport::Loan loan_to(exec::SendPort& port) const;
  bool lend(exec::SendPort& port);
  void end_loan(exec::SendPort& port);
  void settle_first(const exec::SendPort& port);
  transport::DeliveryMode fill(exec::SendPort& port, std::byte* place, std::uint64_t used,
                               std::uint64_t part);

  const transport::RegionTable& regions_;
  std::deque<PendingTransfer> open_;
  bool is_begun_ = false;             // the first of them: its head is in a slot
  std::uint64_t sent_ = 0;            // bytes of it
  std::shared_ptr<const void> held_;  // all its bytes, for the wire; null: they are copied
  // The peer copies all its bytes, until it has released what is before that tail.
  std::optional<std::uint64_t> lent_until_;
  std::deque<TransferInFlight> leaving_;
};

}  // namespace gyre::comm
