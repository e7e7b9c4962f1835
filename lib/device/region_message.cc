#include "lib/device/region_message.h"

#include "kernels/cuda/launch.h"
#include "lib/trust/wire.h"

namespace gyre::comm {
namespace {

constexpr std::uint32_t message_version = 1;

}  // namespace

std::vector<std::uint8_t> encode(const RegionMessage& message) {
  trust::Writer writer;
  writer.put(message_version);
  writer.put(static_cast<std::uint32_t>(message.kind));
  writer.put(message.number);
  if (message.kind == RegionMessage::Kind::offered) {
    writer.put(message.bytes);
    writer.put(message.ticket);
  }
  if (message.kind == RegionMessage::Kind::exported) writer.put_rest(encode(message.memory));
  return writer.take();
}

std::optional<RegionMessage> decode_region_message(std::span<const std::uint8_t> bytes) {
  trust::Reader reader(bytes);
  RegionMessage message;
  std::uint32_t version = 0, kind = 0;
  if (!reader.get(version) || version != message_version || !reader.get(kind) ||
      kind > static_cast<std::uint32_t>(RegionMessage::Kind::kept) || !reader.get(message.number) ||
      message.number < cuda::max_regions)
    return std::nullopt;
  message.kind = static_cast<RegionMessage::Kind>(kind);
  if (message.kind == RegionMessage::Kind::offered &&
      (!reader.get(message.bytes) || !reader.get(message.ticket) || message.bytes == 0 ||
       message.bytes > p2p::max_gpu_bytes))
    return std::nullopt;
  if (message.kind == RegionMessage::Kind::exported) {
    const auto memory = p2p::decode_ipc_memory(reader.rest());
    if (!memory || memory->bytes != memory->allocation_bytes) return std::nullopt;
    message.memory = *memory;
  }
  if (!reader.at_end()) return std::nullopt;
  return message;
}

}  // namespace gyre::comm
