#include "lib/plan/contract.h"

#include <numeric>

namespace gyre::plan {

Contract::Contract(const Plan& plan)
    : collective_(plan.collective()), rank_count_(plan.rank_count()), root_(plan.root()) {
  // clang-format off
  constexpr Promise promises[collective_count] = {
      {Who::all, Who::all, Who::all},      // all_reduce
      {Who::all, Who::owner, Who::all},    // reduce_scatter
      {Who::owner, Who::all, Who::owner},  // all_gather
      {Who::root, Who::all, Who::root},    // broadcast
      {Who::all, Who::root, Who::all},     // reduce
      {Who::all, Who::all, Who::owner},    // all_to_all
      {Who::owner, Who::root, Who::owner}, // gather
      {Who::root, Who::owner, Who::root},  // scatter
  };
  // clang-format on
  promise_ = promises[static_cast<int>(collective_)];
  for (std::uint32_t chunk = 0; chunk < plan.chunk_count(); ++chunk) {
    owners_.push_back(plan.owner(chunk));
  }
}

bool Contract::is(Who who, std::int32_t rank, std::uint32_t chunk) const {
  if (who == Who::all) return true;
  return rank == (who == Who::root ? root_ : owners_[chunk]);
}

std::vector<std::int32_t> Contract::contributors(std::uint32_t chunk) const {
  if (promise_.within == Who::root) return {root_};
  if (promise_.within == Who::owner) return {owners_[chunk]};
  std::vector<std::int32_t> all(static_cast<std::size_t>(rank_count_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::uint64_t Contract::label(Buffer buffer, std::int32_t rank, std::uint32_t chunk) const {
  if (!pairs() || buffer == Buffer::scratch) return chunk;
  const std::uint64_t peer = static_cast<std::uint64_t>(rank);
  const std::uint64_t ranks = static_cast<std::uint64_t>(rank_count_);
  return buffer == Buffer::input ? peer * ranks + chunk : chunk * ranks + peer;
}

}  // namespace gyre::plan
