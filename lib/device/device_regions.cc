#include "lib/device/device_regions.h"

#include "lib/base/log.h"
#include "lib/base/units.h"

namespace gyre::comm {

Result<std::shared_ptr<DeviceRegions>> DeviceRegions::create(int rank,
                                                             const std::vector<int>& peers,
                                                             control::Membership& membership,
                                                             trust::TicketBook& tickets,
                                                             const DeviceAllocations& allocations,
                                                             exec::CudaExecutor& executor) {
  const control::Roster& roster = membership.roster();
  std::map<int, OpenedRegions::Lender> lenders;
  for (const int peer : peers) {
    const trust::ProcessIdentity& process =
        roster.processes[roster.process_of_rank[static_cast<std::size_t>(peer)]];
    lenders[peer] = {process.listener_name, process.pid};
  }
  GYRE_ASSIGN(auto opened, OpenedRegions::create(rank, executor, std::move(lenders)));
  return std::shared_ptr<DeviceRegions>(new DeviceRegions(
      rank, peers, membership, tickets, allocations, executor, std::move(opened)));
}

std::uint64_t DeviceRegions::device_bytes(std::size_t peers) {
  return peers * round_up(OpenedRegions::table_bytes, 256);
}

bool DeviceRegions::tend() {
  const std::lock_guard lock(tending_);
  if (closed_) return false;
  read_messages();
  const bool busy = lent_.tend();
  return opened_->tend([this](int peer, const RegionMessage& message) { answer(peer, message); }) ||
         busy;
}

// A message that comes meanwhile changes the membership once more.
void DeviceRegions::read_messages() {
  const std::uint32_t now = membership_.changed().load(std::memory_order_acquire);
  if (any_read_ && now == read_) return;
  any_read_ = true;
  read_ = now;
  for (const int peer : peers_)
    while (const auto bytes = membership_.receive(peer, region_key)) {
      const auto message = decode_region_message(*bytes);
      if (!message)
        log_warn("rank {}: rank {} sent a malformed message about a region", rank_, peer);
      else if (message->kind == RegionMessage::Kind::offered ||
               message->kind == RegionMessage::Kind::exported ||
               message->kind == RegionMessage::Kind::withdrawn)
        opened_->hear(peer, *message,
                      [this](int to, const RegionMessage& told) { answer(to, told); });
      else
        lent_.hear(peer, *message);
    }
}

// It matters to nobody who has left.
void DeviceRegions::answer(int peer, const RegionMessage& message) {
  (void)membership_.send(peer, region_key, encode(message));
}

void DeviceRegions::close() {
  const std::lock_guard lock(tending_);
  if (closed_) return;
  closed_ = true;
  if (!executor_.was_captured()) lent_.withdraw_all();
  opened_->close();
}

}  // namespace gyre::comm
