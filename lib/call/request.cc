#include "lib/call/request.h"

#include "lib/base/units.h"

namespace gyre::comm {

std::uint64_t hash_with(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio: spreads low bits upward
  return hash ^ hash >> 29;
}

std::string_view function_name(Function function) {
  constexpr std::string_view names[] = {
      "gyreAllReduce",      "gyreReduceScatter", "gyreAllGather", "gyreBroadcast", "gyreReduce",
      "gyreAlltoAll",       "gyreGather",        "gyreScatter",   "gyreAlltoAllv", "gyreAllGatherv",
      "gyreReduceScatterv", "gyreBarrier",       "gyreSend",      "gyreRecv",      "gyreCommSplit"};
  static_assert(std::size(names) == function_count);
  return names[static_cast<int>(function)];
}

BlockCounts block_counts(plan::Collective collective, int size, bool is_root) {
  const auto all = static_cast<std::uint64_t>(size);
  const std::uint64_t if_root = is_root ? 1 : 0;
  switch (collective) {
    case plan::Collective::reduce_scatter:
      return {all, 1};
    case plan::Collective::all_gather:
      return {1, all};
    case plan::Collective::broadcast:
      return {if_root, 1};
    case plan::Collective::reduce:
      return {1, if_root};
    case plan::Collective::all_to_all:
      return {all, all};
    case plan::Collective::gather:
      return {1, all * if_root};
    case plan::Collective::scatter:
      return {all * if_root, 1};
    case plan::Collective::all_reduce:
      break;
  }
  return {1, 1};
}

std::uint64_t signature_of(const Request& request) {
  std::uint64_t hash = hash_with(0x67797265, static_cast<std::uint64_t>(request.function));
  hash = hash_with(hash, static_cast<std::uint64_t>(request.type));
  hash = hash_with(hash, static_cast<std::uint64_t>(request.root));
  if (plan::sums(request.collective))
    hash = hash_with(hash, static_cast<std::uint64_t>(request.op));
  if (request.function == Function::all_to_all_v) return hash;
  hash = hash_with(hash, request.count);
  if (request.tables == nullptr) return hash;
  // Every rank has the same blocks, and those of gathers lie the same way everywhere: peers may
  // write them to where they lie.
  const bool gathers = request.collective == plan::Collective::all_gather;
  for (const plan::Extent& block : gathers ? request.tables->output : request.tables->input) {
    hash = hash_with(hash, block.bytes);
    if (gathers) hash = hash_with(hash, block.offset);
  }
  return hash;
}

std::uint64_t with_own_number(const Request& request, std::uint64_t hash, std::uint64_t sequence) {
  return request.function == Function::all_to_all_v ? hash_with(hash, sequence) : hash;
}

}  // namespace gyre::comm
