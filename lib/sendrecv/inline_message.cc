#include "lib/sendrecv/inline_message.h"

#include "kernels/cpu/move.h"

namespace gyre::comm {

void write_slots(transport::SlotWriter& slots, const std::byte* payload, std::uint64_t bytes) {
  const std::uint64_t slot_bytes = slots.view().shape.slot_bytes;
  for (std::uint64_t at = 0; at < bytes; at += slot_bytes) {
    const std::uint64_t part = std::min(bytes - at, slot_bytes);
    kernels::copy_move(payload + at, slots.place(part), part);
    slots.commit(static_cast<std::uint32_t>(part),
                 transport::message_flag(slots.tail() + 1, transfer_signature),
                 transport::DeliveryMode::staged);
  }
}

}  // namespace gyre::comm
