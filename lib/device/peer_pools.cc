#include "lib/device/peer_pools.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/links/message_keys.h"
#include "lib/loaded/cuda_rest.h"

#include <algorithm>
#include <cstring>

namespace gyre::comm {
namespace {

// Links have the numbers of channels, and -1.
const std::uint64_t pool_key =
    message_key(MessageTopic::device_link, static_cast<std::uint64_t>(std::int64_t{-2}));

}  // namespace

PeerPools::PeerPools(std::vector<int> peers, control::Membership& membership,
                     exec::CudaExecutor& executor, Siblings siblings)
    : membership_(membership),
      executor_(executor),
      siblings_(std::move(siblings)),
      until_ns_(SystemClock::read() + loaded::CudaRest::patience_ns),
      coming_(std::move(peers)) {
  if (coming_.empty()) siblings_.claim->note_opened();
}

Status PeerPools::offer(p2p::LentMemory& lent) {
  if (coming_.empty()) return {};
  if (!lent.lease) {
    GYRE_ASSIGN(lent.lease, p2p::Lease::make());
  }
  const std::shared_ptr<exec::DeviceBlock>& pool = executor_.pool();
  const loaded::CurrentContext scope(executor_.device()->driver(), executor_.device()->owner());
  GYRE_ASSIGN(
      const p2p::IpcMemory rank_message,
      export_memory(executor_.device()->driver(), *lent.lease, pool->begin(), pool->bytes()));
  lent.memory.push_back({pool, pool->begin()});
  for (const int peer : coming_) GYRE_TRY(membership_.send(peer, pool_key, encode(rank_message)));
  return {};
}

void PeerPools::open(int peer, const control::MessageBytes& bytes) {
  const auto rank_message = p2p::decode_ipc_memory(bytes);
  if (!rank_message) return;
  const control::Roster& roster = membership_.roster();
  const std::uint32_t pid =
      roster.processes[roster.process_of_rank[static_cast<std::size_t>(peer)]].pid;
  const exec::CudaDevice& device = *executor_.device();
  auto opened = p2p::ImportedMemory::open(device.driver(), device.owner(), pid, *rank_message);
  if (!opened.ok())
    return log_info(Subsystem::alloc, "the links of rank {} are not open yet: {}", peer,
                    opened.status().message());
  const std::lock_guard lock(mutex_);
  pools_[peer] = {rank_message->handle, rank_message->bytes, std::move(opened).value()};
}

void PeerPools::end() {
  coming_.clear();
  siblings_.claim->note_opened();
}

// What has not come, or cannot be opened, is for the call that needs it, which says why.
bool PeerPools::tend() {
  const std::lock_guard lock(tending_);
  if (closed_ || coming_.empty()) return false;
  if (SystemClock::read() > until_ns_) {
    end();
    return false;
  }
  loaded::CudaRest& rest = *executor_.device()->driver().rest;
  const loaded::CudaRest::Stillness still = rest.try_rest();
  if (!still.is_held()) {
    rest.ask_for_rest();
    return true;
  }
  std::erase_if(coming_, [&](int peer) {
    const auto rank_message = membership_.receive(peer, pool_key);
    if (rank_message) open(peer, *rank_message);
    return bool(rank_message);
  });
  if (coming_.empty()) end();
  return !coming_.empty();
}

void PeerPools::close() {
  const std::lock_guard lock(tending_);
  closed_ = true;
}

bool PeerPools::are_open() const { return siblings_.claim->opened() >= siblings_.ranks; }

bool PeerPools::has(int peer) const {
  const std::lock_guard lock(mutex_);
  return pools_.contains(peer);
}

std::byte* PeerPools::find(int peer, const p2p::IpcMemory& rank_message) const {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(peer);
  if (found == pools_.end() ||
      std::memcmp(&found->second.handle, &rank_message.handle, sizeof rank_message.handle) != 0 ||
      rank_message.offset > found->second.bytes ||
      rank_message.bytes > found->second.bytes - rank_message.offset)
    return nullptr;
  return found->second.memory->begin() + rank_message.offset;
}

}  // namespace gyre::comm
