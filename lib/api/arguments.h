// Checks of what callers pass to the C functions. Each error says which argument, its value and
// what it may be.
#pragma once

#include "lib/call/collective_call.h"
#include "lib/call/request.h"
#include "lib/comm/communicator.h"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace gyre::comm {

// What a caller passed for an enumeration may be no value of it, and C++ must not look at it as
// one.
template <typename Enumeration>
int raw(const Enumeration& value) {
  int number = 0;
  static_assert(sizeof number == sizeof value);
  std::memcpy(&number, &value, sizeof number);
  return number;
}

Status refuse_buffer(std::string_view name, const void* buffer, std::uint64_t bytes);
[[gnu::always_inline]] inline Status check_buffer(const Communicator& communicator,
                                                  std::string_view name, const void* buffer,
                                                  std::uint64_t bytes) {
  if (bytes == 0) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  if (address == 0 || bytes > address_end || address > address_end - bytes) [[unlikely]]
    return refuse_buffer(name, buffer, bytes);
  return communicator.check_memory(name, buffer, bytes);
}
// `blocks` of `count` elements of `type`: their bytes.
Result<std::uint64_t> check_count(std::size_t count, int type, std::uint64_t blocks = 1);
// Fills in op and scalar of a request that has its type.
Status check_op(const Communicator& communicator, int op, Request& request);
Status check_root(int root, int size);

// Fills in a new request.
Status make_request(Communicator& communicator, const CollectiveCall& call, Request& request);

// One side of a v-function; displacements of null: block after block.
struct UnevenSide {
  std::string_view counts_name, displacements_name;
  const std::size_t* counts;
  const std::size_t* displacements;
};
// The blocks in bytes.
Result<std::vector<plan::Extent>> checked_blocks(const UnevenSide& side, int type, int size);

}  // namespace gyre::comm
