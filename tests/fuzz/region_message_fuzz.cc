// The messages by which ranks of different processes announce memory that they lend. Input: the
// message.
#include "kernels/cuda/launch.h"
#include "lib/device/region_message.h"
#include "tests/fuzz/input.h"

namespace region_message_fuzz {

using namespace gyre;

int take_input(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  const auto message = comm::decode_region_message(bytes);
  if (!message) return 0;
  GYRE_DEMAND(std::ranges::equal(encode(*message), bytes));
  // Its place in a table is never told by a number that stands for no region.
  GYRE_DEMAND(message->number >= cuda::max_regions);
  const bool offers = message->kind == comm::RegionMessage::Kind::offered;
  GYRE_DEMAND(offers == (size == 56));
  GYRE_DEMAND(offers ? message->bytes > 0 && message->bytes <= 1ULL << 46 : message->bytes == 0);
  const bool exports = message->kind == comm::RegionMessage::Kind::exported;
  const p2p::IpcMemory& memory = message->memory;
  GYRE_DEMAND(exports ? memory.bytes > 0 && memory.bytes <= 1ULL << 46 : memory.bytes == 0);
  GYRE_DEMAND(memory.bytes == memory.allocation_bytes && memory.offset == 0);
  return 0;
}

GYRE_FUZZ_TARGET(region_message)

}  // namespace region_message_fuzz
