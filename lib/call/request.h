// Request: one checked call of the API, as a value, before anything is chosen or bound.
#pragma once

#include "lib/base/element.h"
#include "lib/call/transfer.h"
#include "lib/plan/cursor.h"
#include "lib/plan/plan.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace gyre::exec {
struct StreamState;
}

namespace gyre::comm {

// Which function was called: for errors, and because two of them may be one collective.
enum class Function : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  all_to_all_v,
  all_gather_v,
  reduce_scatter_v,
  barrier,
  send,
  receive,
  split,  // gyreCommSplit's own exchange
};
inline constexpr int function_count = 15;
std::string_view function_name(Function function);  // "gyreAllReduce"

// Uneven blocks, by rank, in bytes.
struct BlockTables {
  std::vector<plan::Extent> input, output;
};

struct Request {
  Function function = Function::all_reduce;
  plan::Collective collective = plan::Collective::all_reduce;
  const std::byte* input = nullptr;  // null where this rank brings nothing
  std::byte* output = nullptr;       // null where this rank gets nothing
  std::uint64_t count = 0;  // elements, as the API function counts; of all blocks if uneven
  ElementType type = ElementType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t pre_scalar = 0;  // pre_mul_sum: the element, in the low bytes
  int root = 0;
  bool in_place = false;
  std::shared_ptr<const BlockTables> tables;  // of the v-functions
  // On a CUDA communicator: the stream, and whether it is in host memory after all (a split).
  const void* stream = nullptr;
  // What the stream is, if the call is carried out within the function that asked, and within its
  // DeviceScope; null: ask again, later.
  const exec::StreamState* asked = nullptr;
  bool on_host = false;
  // Sends and receives instead of a collective; the rest is then meaningless.
  std::shared_ptr<const std::vector<Transfer>> transfers;

  std::uint64_t block_bytes() const { return count * element_bytes(type); }
};

// How many blocks of `count` elements a rank brings and gets.
struct BlockCounts {
  std::uint64_t input = 1, output = 1;
};
BlockCounts block_counts(plan::Collective collective, int size, bool is_root);

// A hash that has taken in one more word.
std::uint64_t hash_with(std::uint64_t hash, std::uint64_t value);
// What all ranks must agree on, in one word. Private counts (gyreAlltoAllv) are not in it.
std::uint64_t signature_of(const Request& request);
// A hash of the call with its number, if it has private counts: what such a call has left over must
// not be another one's. Else the hash itself.
std::uint64_t with_own_number(const Request& request, std::uint64_t hash, std::uint64_t sequence);

}  // namespace gyre::comm
