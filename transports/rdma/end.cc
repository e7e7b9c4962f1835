#include "transports/rdma/end.h"

#include "transports/rdma/note.h"
#include "transports/rdma/private_pages.h"

#include <new>

namespace gyre::transport {

Status RdmaEnd::register_memory(std::size_t notes, int slots_access) {
  const FifoView& fifo = memory_->view;
  GYRE_TRY(keep_from_children(memory_->mapping));
  grant_offset_ = notes * sizeof(NotePlace);
  GYRE_ASSIGN(notes_, private_pages(grant_offset_ + grant_places * sizeof(NotePlace)));
  for (RdmaRail& rail : link_.rails()) {
    if (rail.queues == nullptr) continue;
    rail.device = rail.queues->shared_device();
    GYRE_ASSIGN(rail.slots,
                rail.device->register_memory(
                    {fifo.slots, fifo.shape.slot_count * fifo.shape.slot_bytes}, slots_access));
    GYRE_ASSIGN(rail.notes,
                rail.device->register_memory({notes_.get().data, notes_.get().bytes},
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  }
  return {};
}

std::shared_ptr<const Registration> RdmaEnd::register_lent(const void* memory,
                                                           std::uint64_t bytes) noexcept {
  try {
    RegistrationCache::NicList devices;
    for (const RdmaRail& rail : link_.rails())
      if (rail.queues != nullptr) devices.push_back(rail.queues->shared_device());
    std::string why;
    auto held = registrations_->hold(memory, bytes, devices, &why);
    if (held == nullptr)
      refusal_ = why.empty() ? "the NIC has been asked for it before, or has no room" : why;
    return held;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::vector<std::string> RdmaEnd::ports() const {
  std::vector<std::string> names;
  for (const RdmaRail& rail : link_.rails())
    if (rail.queues != nullptr) names.push_back(rail.queues->device().port().name());
  return names;
}

Status RdmaEnd::progress() {
  if (!error_.ok()) return error_;
  Status status = link_.is_dropped() ? cut_off_failure() : turn();
  if (!status.ok()) fail(std::move(status));
  return error_;
}

Status RdmaEnd::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  GYRE_TRY(progress());
  // Until its own end has joined, a NIC drops what comes: that is no silence.
  if (!ready()) return {};
  Status looked = link_.look_at_peer(now_ns, limit_ns);
  if (!looked.ok()) fail(std::move(looked));
  return error_;
}

void RdmaEnd::arm(WaitSet& set) {
  if (!error_.ok()) return;
  Status armed = link_.arm(set);
  if (!armed.ok()) return fail(std::move(armed));
  (void)progress();  // the error stays, and the next call tells of it
}

}  // namespace gyre::transport
