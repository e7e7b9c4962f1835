#include "lib/comm/device_links.h"

#include "lib/base/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gyre::comm {
namespace {

// Keys of letters; the host's links have 1, splits 2, questions 3.
std::uint64_t link_key(int channel) { return 4ULL << 56 | static_cast<std::uint32_t>(channel); }
std::uint64_t meeting_key(std::uint64_t plan) { return 5ULL << 56 | plan; }

}  // namespace

Status DeviceLinks::open(const plan::Plan& plan) {
  for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
    const plan::Lane lane = plan.lane(index);
    for (std::uint32_t i = 0; i < lane.link_count; ++i)
      GYRE_TRY(
          open_one({lane.links[i].peer, lane.links[i].channel}, executor_.shape().link_bytes()));
  }
  ++plans_opened_;
  next_to_meet_ = 1;
  told_ = false;
  return {};
}

Status DeviceLinks::open_pair(int peer, std::uint32_t channels) {
  return open_one({peer, pair_channel}, channels * executor_.shape().channel_bytes());
}

Status DeviceLinks::open_one(const Key& key, std::uint64_t bytes) {
  if (joints_.contains(key)) return {};
  auto own = std::make_shared<End>();
  own->device = executor_.device();
  own->bytes = bytes;
  GYRE_ASSIGN(own->memory,
              executor_.allocate(bytes, fmt::format("the link to rank {}", key.first)));
  executor_.keep(own);
  Joint& joint = joints_[key];
  joint.own = own;
  if (key.first == rank_) {
    joint.peers = own;
    return {};
  }
  GYRE_ASSIGN(const trust::Ticket ticket, tickets_.issue([](FileDescriptor) {}, own));
  joint.ticket = transport::IssuedTicket({&tickets_, ticket});
  GYRE_TRY(membership_.send(key.first, link_key(key.second),
                            bootstrap::Letter(ticket.begin(), ticket.end())));
  opening_.push_back(key);
  log_info(Subsystem::graph, "channel {} with rank {} through memory of device {}", key.second,
           key.first, own->device->ordinal());
  return {};
}

// The ticket shows that the letter is of a thread of this process, and finds what it brings.
Status DeviceLinks::take(const Key& key, Joint& joint, const bootstrap::Letter& letter) {
  trust::Ticket ticket{};
  std::shared_ptr<End> end;
  if (letter.size() == ticket.size()) {
    std::memcpy(ticket.data(), letter.data(), ticket.size());
    end = std::static_pointer_cast<End>(tickets_.redeem_local(ticket));
  }
  if (end == nullptr || end->bytes != joint.own->bytes)
    return Status(Code::RemoteError,
                  fmt::format("rank {}'s memory for channel {} is not there (any more)", key.first,
                              key.second))
        .blame({key.first});
  GYRE_TRY(executor_.device()
               ->reach(*end->device)
               .while_doing(fmt::format("opening the link to rank {}", key.first)));
  executor_.keep(end);
  joint.peers = std::move(end);
  return {};
}

Result<bool> DeviceLinks::advance(bool& moved) {
  GYRE_TRY(advance_pairs(moved));
  return opening_.empty() && meet(moved);
}

Status DeviceLinks::advance_pairs(bool& moved) {
  for (std::size_t i = 0; i < opening_.size();) {
    const Key key = opening_[i];
    const auto letter = membership_.receive(key.first, link_key(key.second));
    if (!letter) {
      ++i;
      continue;
    }
    GYRE_TRY(take(key, joints_[key], *letter));
    moved = true;
    opening_.erase(opening_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

bool DeviceLinks::pair_is_open(int peer) const {
  const auto found = joints_.find({peer, pair_channel});
  return found != joints_.end() && found->second.peers != nullptr;
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
  for (; next_to_meet_ < size_; ++next_to_meet_) {
    if (!membership_.receive(next_to_meet_, key)) return false;
    moved = true;
  }
  for (int rank = 1; rank < size_; ++rank) (void)membership_.send(rank, key, {});
  return true;
}

exec::DeviceLink DeviceLinks::link(plan::Link link) const {
  const Joint& joint = joints_.at({link.peer, link.channel});
  return {joint.own->memory.get(), joint.peers->memory.get()};
}

Blocked DeviceLinks::blocked() const {
  if (!opening_.empty()) return {BlockedOn::connection, opening_[0].first, opening_[0].second, 0};
  return {BlockedOn::entered, rank_ == 0 ? std::min(next_to_meet_, size_ - 1) : 0, 0, 0};
}

}  // namespace gyre::comm
