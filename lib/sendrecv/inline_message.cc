#include "lib/sendrecv/inline_message.h"

#include "kernels/cpu/move.h"

namespace gyre::comm {

void write_slots(exec::SendPort& port, const std::byte* payload, std::uint64_t bytes) {
  transport::SlotWriter& slots = port.slots;
  const std::uint64_t slot_bytes = slots.view().shape.slot_bytes;
  for (std::uint64_t at = 0; at < bytes; at += slot_bytes) {
    const std::uint64_t part = std::min(bytes - at, slot_bytes);
    exec::write_paced(port, part, [&](bool streamed) {
      kernels::copy_move(payload + at, slots.place(part), part, streamed);
    });
    slots.commit(static_cast<std::uint32_t>(part),
                 transport::message_flag(slots.tail() + 1, transfer_signature),
                 transport::DeliveryMode::staged);
  }
}

void write_slot(exec::SendPort& port, const Transfer& transfer) {
  transport::SlotWriter& slots = port.slots;
  const std::uint64_t bytes = sizeof(TransferHead) + transfer.bytes;
  const TransferHead head = head_of(transfer);
  std::byte* const place = slots.place(bytes);
  std::memcpy(place, &head, sizeof head);
  kernels::copy_move(transfer.input, place + sizeof head, transfer.bytes);
  slots.commit(static_cast<std::uint32_t>(bytes),
               transport::message_flag(slots.tail() + 1, transfer_signature),
               transport::DeliveryMode::staged);
}

}  // namespace gyre::comm
