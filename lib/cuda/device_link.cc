#include "lib/cuda/device_link.h"

#include "lib/base/units.h"

namespace gyre::exec {

using cuda::DeviceEnd;
using cuda::DeviceGrant;
using cuda::DeviceProtocol;

namespace {

// Where the words of a head lie. Each has one writer, and a pair of lines of its own.
constexpr std::uint64_t tail_offset = 0;              // of what the peer sends here
constexpr std::uint64_t sender_grant_offset = 128;    // the peer's input
constexpr std::uint64_t head_offset = 256;            // of what was sent to the peer
constexpr std::uint64_t receiver_grant_offset = 384;  // the peer's output
constexpr std::uint64_t receive_next_offset = 512;    // this rank's alone
constexpr std::uint64_t send_next_offset = 520;
constexpr std::uint64_t head_bytes = 640;

constexpr std::uint64_t ll_line_bytes = 32, ll_payload_bytes = 16;
constexpr std::uint64_t ll128_line_bytes = 128, ll128_payload_bytes = 120;

std::uint64_t unit_bytes(const DeviceShape& shape, DeviceProtocol protocol) {
  if (protocol == DeviceProtocol::simple) return shape.slot_bytes;
  return protocol == DeviceProtocol::ll ? ll_line_bytes : ll128_line_bytes;
}

std::uint64_t notes_bytes(const DeviceShape& shape, DeviceProtocol protocol) {
  if (protocol != DeviceProtocol::simple) return 0;
  return round_up((1ULL << shape.slot_shift) * sizeof(transport::SlotHeader), 128);
}

std::uint64_t relay_way_bytes(const DeviceShape& shape) {
  return head_bytes + notes_bytes(shape, DeviceProtocol::simple);
}

// In the words of a relayed link, in either end's memory of another one.
std::uint64_t way_offset(const DeviceShape& shape, const DeviceLink& link, std::uint32_t channel,
                         DeviceProtocol protocol) {
  if (link.is_relayed()) return channel * relay_way_bytes(shape);
  std::uint64_t offset = channel * shape.channel_bytes();
  for (int before = 0; before < static_cast<int>(protocol); ++before)
    offset += shape.way_bytes(static_cast<DeviceProtocol>(before));
  return offset;
}

// Of the end whose words of this way begin there.
std::byte* ring(const DeviceShape& shape, std::byte* way, std::byte* rings, std::uint32_t channel,
                DeviceProtocol protocol) {
  if (rings != nullptr) return rings + channel * (shape.slot_bytes << shape.slot_shift);
  return way + head_bytes + notes_bytes(shape, protocol);
}

std::uint64_t* word(std::byte* way, std::uint64_t offset) {
  return reinterpret_cast<std::uint64_t*>(way + offset);
}
DeviceGrant* grant(std::byte* way, std::uint64_t offset) {
  return reinterpret_cast<DeviceGrant*>(way + offset);
}
transport::SlotHeader* notes(std::byte* way) {
  return reinterpret_cast<transport::SlotHeader*>(way + head_bytes);
}

}  // namespace

std::uint32_t DeviceShape::shift(DeviceProtocol protocol) const {
  if (protocol == DeviceProtocol::simple) return slot_shift;
  return protocol == DeviceProtocol::ll ? ll_shift : ll128_shift;
}

std::uint64_t DeviceShape::way_bytes(DeviceProtocol protocol) const {
  return head_bytes + notes_bytes(*this, protocol) +
         (unit_bytes(*this, protocol) << shift(protocol));
}

std::uint64_t DeviceShape::channel_bytes() const {
  std::uint64_t bytes = 0;
  for (int protocol = 0; protocol < cuda::device_protocol_count; ++protocol)
    bytes += way_bytes(static_cast<DeviceProtocol>(protocol));
  return bytes;
}

std::uint64_t DeviceShape::relay_words_bytes() const { return relay_way_bytes(*this) * channels; }

// Lines come back by quarters of the ring, so that three quarters hold what a plan may have under
// way; each piece begins a line of its own.
std::uint64_t DeviceShape::max_piece(DeviceProtocol protocol, std::uint32_t pieces,
                                     std::uint32_t min_depth) const {
  if (protocol == DeviceProtocol::simple) return slot_bytes / pieces / 64 * 64;
  const std::uint64_t lines = ((1ULL << shift(protocol)) - 4) * 3 / 4 / min_depth / pieces;
  return lines * (protocol == DeviceProtocol::ll ? ll_payload_bytes : ll128_payload_bytes) / 64 *
         64;
}

DeviceEnd send_end(const DeviceShape& shape, const DeviceLink& link, std::uint32_t channel,
                   DeviceProtocol protocol) {
  if (link.is_relayed() && protocol != DeviceProtocol::simple) return {};
  const std::uint64_t offset = way_offset(shape, link, channel, protocol);
  std::byte* const own = link.own + offset;
  std::byte* const peers = link.peers + offset;
  DeviceEnd end;
  end.next = word(own, send_next_offset);
  end.told = word(peers, tail_offset);
  end.heard = word(own, head_offset);
  end.ring = ring(shape, peers, link.peers_rings, channel, protocol);
  if (protocol != DeviceProtocol::simple) return end;
  end.notes = notes(peers);
  if (!link.lends) return end;
  end.regions = link.regions;
  end.lent = grant(peers, sender_grant_offset);
  end.borrowed = grant(own, receiver_grant_offset);
  return end;
}

DeviceEnd receive_end(const DeviceShape& shape, const DeviceLink& link, std::uint32_t channel,
                      DeviceProtocol protocol) {
  if (link.is_relayed() && protocol != DeviceProtocol::simple) return {};
  const std::uint64_t offset = way_offset(shape, link, channel, protocol);
  std::byte* const own = link.own + offset;
  std::byte* const peers = link.peers + offset;
  DeviceEnd end;
  end.next = word(own, receive_next_offset);
  end.told = word(peers, head_offset);
  end.heard = word(own, tail_offset);
  end.ring = ring(shape, own, link.own_rings, channel, protocol);
  if (protocol != DeviceProtocol::simple) return end;
  end.notes = notes(own);
  if (!link.lends) return end;
  end.regions = link.regions;
  end.lent = grant(peers, receiver_grant_offset);
  end.borrowed = grant(own, sender_grant_offset);
  return end;
}

}  // namespace gyre::exec
