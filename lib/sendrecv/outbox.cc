#include "lib/sendrecv/outbox.h"

#include "kernels/cpu/move.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gyre::comm {

// One slot after the other, the head in the first.
void Outbox::ship(exec::SendPort& port, bool& moved) {
  const std::uint64_t slot_bytes = port.slots.view().shape.slot_bytes;
  while (!open_.empty() && port.slots.has_credit()) {
    const auto [transfer, batch] = open_.front();
    std::byte* place = port.slots.place();
    std::uint64_t used = 0;
    if (!std::exchange(is_begun_, true)) {
      const TransferHead head{
          transfer->bytes, transfer->tag, static_cast<std::uint8_t>(transfer->type), {}};
      std::memcpy(place, &head, sizeof head);
      used = sizeof head;
    }
    const std::uint64_t part = std::min(slot_bytes - used, transfer->bytes - sent_);
    kernels::copy_move(transfer->input + sent_, place + used, part);
    sent_ += part;
    port.slots.commit(static_cast<std::uint32_t>(used + part),
                      transport::message_flag(port.slots.tail() + 1, transfer_signature),
                      transport::DeliveryMode::staged);
    moved = true;
    if (sent_ < transfer->bytes) continue;
    open_.pop_front();
    is_begun_ = false;
    sent_ = 0;
    leaving_.push_back({port.slots.tail(), batch});
    batch->settle(*transfer);
  }
}

Status Outbox::advance(exec::SendPort& port, bool& moved) {
  ship(port, moved);
  if (port.connection->needs_progress()) GYRE_TRY(port.connection->progress());
  while (!leaving_.empty() && port.connection->flushed_to(leaving_.front().tail)) {
    leaving_.front().batch->leave();
    leaving_.pop_front();
  }
  return {};
}

void Outbox::forget(const Batch& batch) {
  std::erase_if(open_, [&](const PendingTransfer& one) { return one.batch == &batch; });
  std::erase_if(leaving_, [&](const TransferInFlight& one) { return one.batch == &batch; });
}

}  // namespace gyre::comm
