#include "lib/device/device_links.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/links/message_keys.h"
#include "lib/loaded/cuda_rest.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::comm {
namespace {

// Keys of messages; the host's links have 1, splits 2, questions 3.
std::uint64_t link_key(int channel) {
  return message_key(MessageTopic::device_link, static_cast<std::uint64_t>(channel));
}
std::uint64_t meeting_key(std::uint64_t plan) {
  return message_key(MessageTopic::device_plan, plan);
}

}  // namespace

Status DeviceLinks::open_pools(PeerPools::Siblings siblings) {
  std::vector<int> peers;
  for (int peer = 0; peer < size(); ++peer)
    if (way(peer).way == p2p::GpuRoute::ipc) peers.push_back(peer);
  pools_ =
      std::make_shared<PeerPools>(std::move(peers), membership_, executor_, std::move(siblings));
  executor_.keep(pools_);  // what graphs use, too
  return pools_->offer(lent_);
}

Status DeviceLinks::open(std::span<const plan::Plan> by_channel) {
  for (const plan::Plan& plan : by_channel) GYRE_TRY(open_links(plan));
  ++plans_opened_;
  next_to_meet_ = 1;
  told_ = false;
  return {};
}

Status DeviceLinks::open_links(const plan::Plan& plan) {
  for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
    const plan::Lane lane = plan.lane(index);
    for (std::uint32_t i = 0; i < lane.link_count; ++i)
      GYRE_TRY(open_one({lane.links[i].peer, lane.links[i].channel}, executor_.shape().channels));
  }
  return {};
}

Status DeviceLinks::open_pair(int peer, std::uint32_t channels) {
  return open_one({peer, pair_channel}, channels);
}

Status DeviceLinks::open_one(const Key& key, std::uint32_t channels) {
  if (joints_.contains(key)) return {};
  auto own = std::make_shared<End>();
  own->device = executor_.device();
  own->bytes = channels * executor_.shape().channel_bytes();
  if (is_relayed(key.first)) {
    GYRE_ASSIGN(std::shared_ptr<void> relayed, relays_->prepare(key, channels));
    executor_.keep(std::move(relayed));
  } else {
    GYRE_ASSIGN(own->memory,
                executor_.allocate(own->bytes, fmt::format("the link to rank {}", key.first)));
  }
  executor_.keep(own);
  JointLink& joint = joints_[key];
  joint.own = own;
  if (key.first == rank_) {
    joint.peers = own->memory.get();
    joint.is_open = true;
    return {};
  }
  GYRE_ASSIGN(control::MessageBytes message, offer(key, joint));
  GYRE_TRY(membership_.send(key.first, link_key(key.second), std::move(message)));
  joint.until_ns = SystemClock::read() + loaded::CudaRest::patience_ns;
  opening_.push_back(key);
  log_info(Subsystem::graph, "channel {} with rank {} through memory of device {}, by {}",
           key.second, key.first, own->device->ordinal(), p2p::route_name(way(key.first).way));
  return {};
}

Result<control::MessageBytes> DeviceLinks::offer(const Key& key, JointLink& joint) {
  switch (way(key.first).way) {
    case p2p::GpuRoute::pointer:
      return offer_pointer(joint);
    case p2p::GpuRoute::ipc:
      return offer_export(joint);
    case p2p::GpuRoute::relay:
      break;
  }
  return relays_->offer(key);
}

Result<DeviceLinks::PeersEnd> DeviceLinks::take(const Key& key, const JointLink& joint,
                                                const control::MessageBytes& message) {
  auto end = is_relayed(key.first) ? take_relay(key, message)
             : way(key.first).way == p2p::GpuRoute::pointer
                 ? take_pointer(joint, message)
                 : take_import(key.first, joint, message);
  if (end.ok()) return end;
  Status why = std::move(end).status();
  const bool is_peers_fault = why.code() == Code::RemoteError;
  why = std::move(why).while_doing(
      fmt::format("opening channel {} with rank {}", key.second, key.first));
  return is_peers_fault ? std::move(why).blame({key.first}) : std::move(why);
}

Result<control::MessageBytes> DeviceLinks::offer_pointer(JointLink& joint) {
  GYRE_ASSIGN(const trust::Ticket ticket, tickets_.issue([](FileDescriptor) {}, joint.own));
  joint.ticket = transport::IssuedTicket({&tickets_, ticket});
  return control::MessageBytes(ticket.begin(), ticket.end());
}

// The ticket shows that the message is of a thread of this process, and finds what it brings.
Result<DeviceLinks::PeersEnd> DeviceLinks::take_pointer(const JointLink& joint,
                                                        const control::MessageBytes& message) {
  trust::Ticket ticket{};
  std::shared_ptr<End> end;
  if (message.size() == ticket.size()) {
    std::memcpy(ticket.data(), message.data(), ticket.size());
    end = std::static_pointer_cast<End>(tickets_.redeem_local(ticket));
  }
  if (end == nullptr || end->bytes != joint.own->bytes)
    return Status(Code::RemoteError, "its memory does not exist (any more)");
  GYRE_TRY(executor_.device()->reach(*end->device));
  std::byte* const memory = end->memory.get();
  return PeersEnd{memory, std::move(end)};
}

// Kernels here send to a mirror of what the peer has.
Result<DeviceLinks::PeersEnd> DeviceLinks::take_relay(const Key& key,
                                                      const control::MessageBytes& message) {
  GYRE_TRY(relays_->take(key, message));
  return PeersEnd{};
}

Result<control::MessageBytes> DeviceLinks::offer_export(JointLink& joint) {
  if (!lent_.lease) {
    GYRE_ASSIGN(lent_.lease, p2p::Lease::make());
  }
  const loaded::CurrentContext scope(executor_.device()->driver(), executor_.device()->owner());
  GYRE_ASSIGN(const p2p::IpcMemory message,
              export_memory(executor_.device()->driver(), *lent_.lease, joint.own->memory.get(),
                            joint.own->bytes));
  lent_.memory.push_back(joint.own->memory);
  return encode(message);
}

Result<DeviceLinks::PeersEnd> DeviceLinks::take_import(int peer, const JointLink& joint,
                                                       const control::MessageBytes& bytes) {
  const auto message = p2p::decode_ipc_memory(bytes);
  if (!message || message->bytes != joint.own->bytes)
    return Status(Code::RemoteError, "its message names no memory of a link");
  std::byte* const known = pools_ != nullptr ? pools_->find(peer, *message) : nullptr;
  if (known != nullptr) return PeersEnd{known, nullptr};
  auto opened = p2p::ImportedMemory::open(executor_.device()->driver(), executor_.device()->owner(),
                                          process_id_of(peer), *message);
  if (!opened.ok()) return std::move(opened).status();
  std::byte* const memory = (*opened)->begin();
  return PeersEnd{memory, std::move(opened).value()};
}

std::uint32_t DeviceLinks::process_id_of(int peer) const {
  const control::Roster& roster = membership_.roster();
  return roster.processes[roster.process_of_rank[static_cast<std::size_t>(peer)]].pid;
}

Result<bool> DeviceLinks::advance(bool& moved) {
  GYRE_TRY(advance_pairs(moved));
  if (!opening_.empty()) return false;
  GYRE_ASSIGN(const bool ready, are_relays_ready());
  return ready && meet(moved);
}

Result<bool> DeviceLinks::are_relays_ready() const {
  return relays_ != nullptr ? relays_->are_ready() : Result<bool>(true);
}

Status DeviceLinks::advance_pairs(bool& moved) {
  for (std::size_t i = 0; i < opening_.size();) {
    const Key key = opening_[i];
    // A process's memory is opened by a call of the driver that waits for kernels; this one waits
    // in peace, as those may wait for another call of this thread.
    const auto& rest = executor_.device()->driver().rest;
    const bool asks_driver = way(key.first).way == p2p::GpuRoute::ipc && rest != nullptr &&
                             !(pools_ != nullptr && pools_->has(key.first));
    const auto still = asks_driver ? rest->try_rest() : loaded::CudaRest::Stillness({});
    if (asks_driver && !still.is_held() && SystemClock::read() < joints_[key].until_ns) {
      ++i;
      continue;
    }
    const auto message = membership_.receive(key.first, link_key(key.second));
    if (!message) {
      ++i;
      continue;
    }
    JointLink& joint = joints_[key];
    GYRE_ASSIGN(PeersEnd end, take(key, joint, *message));
    joint.peers = end.memory;
    joint.is_open = true;
    executor_.keep(std::move(end.holds));
    moved = true;
    opening_.erase(opening_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

bool DeviceLinks::pair_is_open(int peer) const {
  const auto found = joints_.find({peer, pair_channel});
  return found != joints_.end() && found->second.is_open;
}

// All tell rank 0 that they have opened the plan, and rank 0 tells all when all have.
bool DeviceLinks::meet(bool& moved) {
  const std::uint64_t key = meeting_key(plans_opened_);
  if (rank_ != 0) {
    if (!std::exchange(told_, true)) (void)membership_.send(0, key, {});
    if (!membership_.receive(0, key)) return false;
    moved = true;
    return true;
  }
  for (; next_to_meet_ < size(); ++next_to_meet_) {
    if (!membership_.receive(next_to_meet_, key)) return false;
    moved = true;
  }
  for (int rank = 1; rank < size(); ++rank) (void)membership_.send(rank, key, {});
  return true;
}

exec::DeviceLink DeviceLinks::link(plan::Link link) const {
  const JointLink& joint = joints_.at({link.peer, link.channel});
  if (is_relayed(link.peer)) return relays_->link({link.peer, link.channel});
  return {joint.own->memory.get(), joint.peers, way(link.peer).way == p2p::GpuRoute::pointer};
}

Blocked DeviceLinks::blocked() const {
  if (!opening_.empty()) return {BlockedOn::connection, opening_[0].first, opening_[0].second, 0};
  return {BlockedOn::entered, rank_ == 0 ? std::min(next_to_meet_, size() - 1) : 0, 0, 0};
}

}  // namespace gyre::comm
