#include "lib/device/device_exchange.h"

#include "lib/base/units.h"
#include "lib/call/request.h"

#include <algorithm>
#include <span>

namespace gyre::comm {
namespace {

// Of a link: more than one channel pays for bulk alone.
constexpr std::uint32_t max_channels = 4;
constexpr std::uint64_t min_transfer_channel_bytes = 256 << 10;  // not measured yet
constexpr std::uint64_t part_alignment = 128;

}  // namespace

// So many that one launch can talk to all ranks both ways, if that can be.
std::uint32_t DeviceExchange::channels_for(std::uint32_t blocks, int size) {
  return std::clamp(blocks / (2 * static_cast<std::uint32_t>(size)), 1U, max_channels);
}

DeviceExchange::DeviceExchange(DeviceLinks& links, control::Membership& membership,
                               exec::CudaExecutor& executor, int rank, int size,
                               std::uint32_t blocks, std::function<void()> launched)
    : links_(links),
      membership_(membership),
      executor_(executor),
      rank_(rank),
      size_(size),
      blocks_(blocks),
      channels_(std::min(channels_for(blocks, size), executor.shape().channels)),
      on_launched_(std::move(launched)) {}

// What is sent so far ahead meets what is received from so far behind.
int DeviceExchange::distance(const Transfer& transfer) const {
  const int ahead = transfer.sends ? transfer.peer - rank_ : rank_ - transfer.peer;
  return (ahead + size_) % size_;
}

std::uint32_t DeviceExchange::channels_of(const Transfer& transfer) const {
  const std::uint64_t wanted = divide_up(transfer.bytes, min_transfer_channel_bytes);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, channels_));
}

Status DeviceExchange::begin(Batch& batch) {
  const std::span<const Transfer> all = batch.transfers();
  batch_ = &batch;
  launched_ = 0;
  streams_.clear();
  transfers_.clear();
  asked_ = all.size() == 1 ? all[0].asked : nullptr;
  for (const Transfer& one : all) {
    transfers_.push_back(&one);
    const auto stream = static_cast<loaded::CuStream>(const_cast<void*>(one.stream));
    if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
    GYRE_TRY(links_.open_pair(one.peer, channels_));
  }
  std::ranges::stable_sort(transfers_, {}, [this](const Transfer* one) { return distance(*one); });
  return {};
}

Status DeviceExchange::advance(bool& moved) {
  GYRE_TRY(links_.advance_pairs(moved));
  const auto is_open = [this](const Transfer* one) { return links_.pair_is_open(one->peer); };
  if (!std::ranges::all_of(transfers_, is_open)) return {};
  while (launched_ < transfers_.size()) {
    GYRE_ASSIGN(const bool launched, launch_some());
    if (!launched) return {};
    moved = true;
  }
  return {};
}

Result<const exec::DevicePair*> DeviceExchange::pair(int peer) {
  const auto known = pairs_.find(peer);
  if (known != pairs_.end()) return &known->second;
  GYRE_ASSIGN(const exec::DevicePair made, executor_.bind_pair(peer, channels_, links_.pair(peer)));
  return &pairs_.emplace(peer, made).first->second;
}

// A part for each channel; both ends know the parts from the bytes alone.
Status DeviceExchange::add_parts(const Transfer& transfer,
                                 std::map<const void*, std::uint32_t>& blocks,
                                 std::vector<exec::DeviceTransfer>& parts) {
  GYRE_ASSIGN(const exec::DevicePair* pair, this->pair(transfer.peer));
  const std::uint32_t channels = channels_of(transfer);
  const std::uint64_t most = round_up(divide_up(transfer.bytes, channels), part_alignment);
  std::byte* const place =
      transfer.sends ? const_cast<std::byte*>(transfer.input) : transfer.output;
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    const std::uint64_t begin = std::min(transfer.bytes, channel * most);
    exec::DeviceTransfer part;
    part.bytes = std::min(transfer.bytes - begin, most);
    if (part.bytes == 0) break;
    part.lane = (transfer.sends ? pair->send : pair->receive) + channel;
    part.block =
        blocks.try_emplace(part.lane, static_cast<std::uint32_t>(blocks.size())).first->second;
    part.place = place + begin;
    part.signature = hash_with(transfer_signature, transfer.bytes);
    parts.push_back(part);
  }
  return {};
}

// One kernel for as many distances as have blocks. All ranks go from the near to the far, so the
// nearest that is not done anywhere is on its way at both of its ends: they never wait in a circle.
Result<bool> DeviceExchange::launch_some() {
  GYRE_ASSIGN(const bool room, executor_.has_room(true));
  if (!room) return false;
  std::map<const void*, std::uint32_t> blocks;  // of lanes
  std::vector<exec::DeviceTransfer> parts;
  std::size_t at = launched_;
  while (at < transfers_.size()) {
    const int here = distance(*transfers_[at]);
    const auto count = static_cast<std::size_t>(std::ranges::count_if(
        transfers_, [&](const Transfer* one) { return distance(*one) == here; }));
    const bool fits = blocks.size() + 2ULL * channels_ <= blocks_ &&
                      parts.size() + count * channels_ <= executor_.max_tasks();
    if (!fits && at > launched_) break;
    for (; at < transfers_.size() && distance(*transfers_[at]) == here; ++at)
      GYRE_TRY(add_parts(*transfers_[at], blocks, parts));
  }
  const auto rank = static_cast<std::uint32_t>(rank_);
  if (!parts.empty())
    GYRE_TRY(asked_ != nullptr ? executor_.launch(parts, rank, *asked_)
                               : executor_.launch(parts, rank, streams_));
  for (; launched_ < at; ++launched_) {
    batch_->settle(*transfers_[launched_]);
    if (transfers_[launched_]->sends) batch_->leave();
  }
  return true;
}

Blocked DeviceExchange::blocked(const Batch&) {
  for (const Transfer* one : transfers_)
    if (!links_.pair_is_open(one->peer)) return {BlockedOn::connection, one->peer, 0, 0};
  return {BlockedOn::kernel, -1, 0, 0};
}

void DeviceExchange::end(Batch&, const Status& why) {
  if (why.ok()) on_launched_();
  transfers_.clear();
  launched_ = 0;
}

bool DeviceExchange::arm(WaitSet& set) {
  auto& word = membership_.changed();
  set.add_futex(&word, word.load(std::memory_order_acquire));
  return true;
}

}  // namespace gyre::comm
