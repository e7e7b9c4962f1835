#include "transports/rdma/address.h"

#include "lib/trust/wire.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace gyre::transport {
namespace {

constexpr std::uint8_t address_version = 4;
constexpr std::size_t max_place = 60;
constexpr std::uint32_t numbers_end = 1 << 24;

void put(trust::Writer& writer, const RemoteMemory& memory) {
  writer.put(memory.address);
  writer.put(memory.key);
}

bool get(trust::Reader& reader, RemoteMemory& memory) {
  return reader.get(memory.address) && reader.get(memory.key);
}

bool get_pairs(trust::Reader& reader, std::vector<QueuePairNumbers>& pairs) {
  std::uint8_t count = 0;
  if (!reader.get(count) || count == 0 || count > max_queue_pairs) return false;
  for (int i = 0; i < count; ++i) {
    QueuePairNumbers& numbers = pairs.emplace_back();
    if (!reader.get(numbers.pair) || !reader.get(numbers.first_packet) ||
        numbers.pair >= numbers_end || numbers.first_packet >= numbers_end)
      return false;
  }
  return true;
}

}  // namespace

std::vector<std::uint8_t> encode(const RdmaAddress& address) {
  trust::Writer writer;
  writer.put(address_version);
  writer.put(static_cast<std::uint8_t>(address.network));
  writer.put(address.mtu);
  writer.put(address.lid);
  writer.put(address.planned);
  writer.put(std::to_array(address.gid.raw));
  writer.put(address.window);
  for (const RemoteMemory* memory : {&address.slots, &address.notes, &address.probed})
    put(writer, *memory);
  writer.put(static_cast<std::uint8_t>(std::min(address.pairs.size(), max_queue_pairs)));
  for (std::size_t i = 0; i < std::min(address.pairs.size(), max_queue_pairs); ++i) {
    writer.put(address.pairs[i].pair);
    writer.put(address.pairs[i].first_packet);
  }
  writer.put_text(std::string_view(address.place).substr(0, max_place));
  return writer.take();
}

std::optional<RdmaAddress> decode_rdma_address(std::span<const std::uint8_t> bytes) {
  RdmaAddress address;
  trust::Reader reader(bytes);
  std::uint8_t version = 0, network = 0;
  std::array<std::uint8_t, 16> gid{};
  const bool is_whole = reader.get(version) && version == address_version && reader.get(network) &&
                        network < rdma_network_count && reader.get(address.mtu) &&
                        address.mtu >= IBV_MTU_256 && address.mtu <= IBV_MTU_4096 &&
                        reader.get(address.lid) && reader.get(address.planned) && reader.get(gid) &&
                        reader.get(address.window) && address.window <= max_window &&
                        get(reader, address.slots) && get(reader, address.notes) &&
                        get(reader, address.probed) && get_pairs(reader, address.pairs) &&
                        reader.get_words(address.place, max_place) && reader.at_end();
  if (!is_whole) return std::nullopt;
  address.network = static_cast<RdmaNetwork>(network);
  std::memcpy(address.gid.raw, gid.data(), gid.size());
  return address;
}

std::vector<std::uint8_t> encode(const RdmaAnswer& answer) {
  trust::Writer writer;
  writer.put(answer.ticket);
  writer.put(static_cast<std::uint8_t>(std::min(answer.rails.size(), max_rails)));
  for (std::size_t i = 0; i < std::min(answer.rails.size(), max_rails); ++i)
    writer.put_block(answer.rails[i] ? encode(*answer.rails[i]) : std::vector<std::uint8_t>());
  return writer.take();
}

std::optional<RdmaAnswer> decode_rdma_answer(std::span<const std::uint8_t> bytes) {
  RdmaAnswer answer;
  trust::Reader reader(bytes);
  std::uint8_t count = 0;
  if (!reader.get(answer.ticket) || !reader.get(count) || count > max_rails) return std::nullopt;
  for (int i = 0; i < count; ++i) {
    std::vector<std::uint8_t> block;
    if (!reader.get_block(block, UINT8_MAX)) return std::nullopt;
    answer.rails.push_back(block.empty() ? std::nullopt : decode_rdma_address(block));
    if (!block.empty() && !answer.rails.back()) return std::nullopt;
  }
  return reader.at_end() ? std::optional(std::move(answer)) : std::nullopt;
}

}  // namespace gyre::transport
