#include "lib/device/region_letter.h"

#include "kernels/cuda/launch.h"
#include "lib/trust/wire.h"

namespace gyre::comm {
namespace {

constexpr std::uint32_t letter_version = 1;

}  // namespace

std::vector<std::uint8_t> encode(const RegionLetter& letter) {
  trust::Writer writer;
  writer.put(letter_version);
  writer.put(static_cast<std::uint32_t>(letter.kind));
  writer.put(letter.number);
  if (letter.kind == RegionLetter::Kind::offered) {
    writer.put(letter.bytes);
    writer.put(letter.ticket);
  }
  if (letter.kind == RegionLetter::Kind::exported) writer.put_rest(encode(letter.memory));
  return writer.take();
}

std::optional<RegionLetter> decode_region_letter(std::span<const std::uint8_t> bytes) {
  trust::Reader reader(bytes);
  RegionLetter letter;
  std::uint32_t version = 0, kind = 0;
  if (!reader.get(version) || version != letter_version || !reader.get(kind) ||
      kind > static_cast<std::uint32_t>(RegionLetter::Kind::kept) || !reader.get(letter.number) ||
      letter.number < cuda::regions_most)
    return std::nullopt;
  letter.kind = static_cast<RegionLetter::Kind>(kind);
  if (letter.kind == RegionLetter::Kind::offered &&
      (!reader.get(letter.bytes) || !reader.get(letter.ticket) || letter.bytes == 0 ||
       letter.bytes > p2p::gpu_bytes_most))
    return std::nullopt;
  if (letter.kind == RegionLetter::Kind::exported) {
    const auto memory = p2p::decode_memory_letter(reader.rest());
    if (!memory || memory->bytes != memory->allocation_bytes) return std::nullopt;
    letter.memory = *memory;
  }
  if (!reader.at_end()) return std::nullopt;
  return letter;
}

}  // namespace gyre::comm
