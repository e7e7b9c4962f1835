// Carrier: what a connection has whose wire moves bytes between memory that callers lend, at one
// end or at both. Another process's memory may be out of reach and still be lent, by way of the
// wire:
//
//   the sender's     A message with delivery `pull` stays where it lies. Its parts (LentParts) say
//                    where that is. The wire reads them until the connection is flushed.
//   the receiver's   `lend` lets the wire write messages there in one call.
//
// How a message gets into the receiver's memory, there are two ways:
//
//   by a grant       `lend` tells the sender, which finds it as receiver_grant of its end's fifo.
//                    It sends with delivery `push`, and a part's target is a place there.
//   by its place     The sender waits for nobody. Each message says which call it is of, and where
//                    in the receiver's output it belongs. The receiving end puts it there if it
//                    lends memory for that call then, else into a slot.
//
// A part of a message may also lie in the message's slot. The receiver finds staged messages or
// pushed ones: from where the wire took them is nothing to it.
#pragma once

#include "lib/transport/slots.h"
#include "lib/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gyre::transport {

// Less is copied in less time than another request takes.
inline constexpr std::uint64_t min_lent_bytes = 4096;

struct LentPart {
  const std::byte* source = nullptr;
  // Offset in what the receiver lends, if it is pushed or goes by its place; else in the slot.
  std::uint64_t target = 0;
  std::uint64_t bytes = 0;
};

// Of one message, in order. Each takes a request of its own.
struct LentParts {
  static constexpr std::size_t most = 4;
  std::size_t count = 0;
  std::array<LentPart, most> parts{};
  std::uint64_t call = 0;  // by its place: the call's sequence + 1; else 0

  // Grows the last one if this goes on from it. False: there would be too many.
  bool add(const LentPart& next) {
    if (count > 0) {
      LentPart& last = parts[count - 1];
      if (last.source + last.bytes == next.source && last.target + last.bytes == next.target) {
        last.bytes += next.bytes;
        return true;
      }
    }
    if (count == most) return false;
    parts[count++] = next;
    return true;
  }
};

// Of the message in the slot of that number.
inline LentParts& lent_parts(const FifoView& view, std::uint64_t index) {
  return view.lent[index & (view.shape.slot_count - 1)];
}

// Nothing here throws: a call has lent all or nothing when it begins, and its buffers are its
// caller's when it has failed.
class Carrier {
 public:
  virtual ~Carrier() = default;
  // Lets the wire reach the memory as long as the caller keeps this. Null: its bytes are copied.
  // At a receiving end, what is held can be lent later, without fail.
  virtual std::shared_ptr<const void> hold(const void* memory, std::uint64_t bytes) noexcept = 0;
  // Why the last `hold` gave nothing, as far as it is known.
  virtual std::string refusal() const { return {}; }
  // The wire's ports here: "mlx5_0:1".
  virtual std::vector<std::string> ports() const { return {}; }
  // Messages get into the receiver's memory by a grant, else by their place.
  virtual bool grants() const { return true; }
  // The receiving end: what the sender may write in the call of this sequence. `loan.offset` is a
  // plain address, if anything is lent.
  virtual void lend(const Loan& /*loan*/, std::uint64_t /*sequence*/) noexcept {}
  // The receiving end: the call has got all its messages.
  virtual void end_loan() noexcept {}
  // After a failure: from its return on the wire reads and writes nothing of what was lent. The
  // connection is of no use any more.
  virtual void cut_off() noexcept = 0;
};

// Why a connection that was cut off is of no use.
inline Status cut_off_failure() {
  return Status(Code::Aborted, "the call that lent memory to it has failed");
}

// For those whose sender has to know what is lent: the carrier, if it grants.
inline Carrier* granting_carrier(Connection& connection) {
  Carrier* const carrier = connection.carrier();
  return carrier != nullptr && carrier->grants() ? carrier : nullptr;
}

}  // namespace gyre::transport
