#include "lib/device/device_holdings.h"

#include <algorithm>

namespace gyre::comm {

DeviceHoldings::DeviceHoldings() : book_(std::make_shared<Book>()) {}

DeviceHoldings::ClaimResult DeviceHoldings::claim(const std::string& uuid,
                                                  const std::string& communicator,
                                                  std::uint32_t total, Estimate estimate) {
  ClaimResult claimed;
  const std::lock_guard lock(book_->mutex);
  auto& on_gpu = book_->by_gpu[uuid];
  for (const auto& [name, entry] : on_gpu)
    if (name != communicator) claimed.others.push_back(entry.holding);
  HoldingEntry& own = on_gpu[communicator];
  if (own.claims++ == 0) own.holding = {communicator, 1, estimate(total, claimed.others)};
  std::shared_ptr<std::atomic<std::uint32_t>> opened = book_->opened[communicator].lock();
  if (opened == nullptr) opened = std::make_shared<std::atomic<std::uint32_t>>(0);
  book_->opened[communicator] = opened;
  claimed.claim = std::make_shared<Claim>(book_, uuid, communicator, std::move(opened));
  return claimed;
}

void DeviceHoldings::Claim::settle(std::uint32_t ranks, std::uint32_t blocks) {
  const std::lock_guard lock(book_->mutex);
  if (!has_given_back_)
    book_->by_gpu[uuid_][communicator_].holding = {communicator_, ranks, blocks};
}

DeviceHoldings::Claim::~Claim() {
  give_back();
  opened_.reset();
  const std::lock_guard lock(book_->mutex);
  const auto found = book_->opened.find(communicator_);
  if (found != book_->opened.end() && found->second.expired()) book_->opened.erase(found);
}

void DeviceHoldings::Claim::give_back() {
  const std::lock_guard lock(book_->mutex);
  if (std::exchange(has_given_back_, true)) return;
  auto& on_gpu = book_->by_gpu[uuid_];
  if (--on_gpu[communicator_].claims == 0) on_gpu.erase(communicator_);
}

DeviceHoldings::LocalUse DeviceHoldings::Claim::here() {
  const std::lock_guard lock(book_->mutex);
  LocalUse here;
  auto& on_gpu = book_->by_gpu[uuid_];
  for (const auto& [name, entry] : on_gpu) {
    ++here.communicators;
    here.ranks += entry.claims;
    here.max_ranks = std::max(here.max_ranks, entry.claims);
  }
  here.is_first = !std::exchange(on_gpu[communicator_].asked, true);
  return here;
}

// The last who holds a rank's executor gives back its claim, which takes the mutex.
Status DeviceHoldings::Claim::use_stream(int rank, DeviceStreamUse use) {
  std::vector<std::shared_ptr<const void>> held;
  const std::lock_guard lock(book_->mutex);
  if (has_given_back_) return {};
  auto& streams = book_->by_gpu[uuid_][communicator_].streams;
  for (const auto& [other, its] : streams)
    if (other != rank && wait_for_each_other(use, its) &&
        (its.is_pending || its.is_running(held.emplace_back())))
      return refuse_streams(rank, use, other, its);
  streams[rank] = std::move(use);
  return {};
}

void DeviceHoldings::Claim::note_launch(int rank) {
  const std::lock_guard lock(book_->mutex);
  if (!has_given_back_) book_->by_gpu[uuid_][communicator_].streams[rank].is_pending = false;
}

std::vector<DeviceHolding> DeviceHoldings::Claim::all() const {
  const std::lock_guard lock(book_->mutex);
  std::vector<DeviceHolding> all;
  for (const auto& [name, entry] : book_->by_gpu[uuid_]) all.push_back(entry.holding);
  return all;
}

}  // namespace gyre::comm
