// The letters by which ranks of different processes tell each other of memory that they lend.
// Input: the letter.
#include "kernels/cuda/launch.h"
#include "lib/device/region_letter.h"
#include "tests/fuzz/input.h"

using namespace gyre;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  const auto letter = comm::decode_region_letter(bytes);
  if (!letter) return 0;
  GYRE_DEMAND(std::ranges::equal(encode(*letter), bytes));
  // Its place in a table is never told by a number that stands for no region.
  GYRE_DEMAND(letter->number >= cuda::regions_most);
  const bool offers = letter->kind == comm::RegionLetter::Kind::offered;
  GYRE_DEMAND(offers == (size == 56));
  GYRE_DEMAND(offers ? letter->bytes > 0 && letter->bytes <= 1ULL << 46 : letter->bytes == 0);
  const bool exports = letter->kind == comm::RegionLetter::Kind::exported;
  const p2p::MemoryLetter& memory = letter->memory;
  GYRE_DEMAND(exports ? memory.bytes > 0 && memory.bytes <= 1ULL << 46 : memory.bytes == 0);
  GYRE_DEMAND(memory.bytes == memory.allocation_bytes && memory.offset == 0);
  return 0;
}
