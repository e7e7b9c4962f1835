// DeviceLink: the memory for both directions of a link between two ranks. Each end's memory is on
// its own device, because an end's polled words belong there. This file also lays the ends of a
// kernel (kernels/cuda/launch.h) out in it. Each end of a link brings one piece, for all channels
// and protocols:
//
//   for each channel, for each protocol:   head of 640 bytes | notes | ring
//
// The ring and the words beside it are for messages that the peer sends here. The sender's words
// for messages to the peer lie here as well, because this end polls them.
//
// A relayed link (device_relay.h) has `simple` alone. Its rings lie apart from the words, so that a
// wire may be lent the rings and nothing else:
//
//   words   for each channel:   head of 640 bytes | notes
//   rings   for each channel:   ring
#pragma once

#include "kernels/cuda/kernel_name.h"

#include <cstddef>
#include <cstdint>

namespace gyre::exec {

// Sizes that all ranks of a communicator derive from what all know.
struct DeviceShape {
  std::uint32_t channels = 1;
  std::uint64_t slot_bytes = 256 << 10;  // a multiple of 128
  std::uint32_t slot_shift = 2;          // 2^2 slots
  std::uint32_t ll_shift = 12;           // 2^12 lines of 32 bytes: 64 KiB of payload
  std::uint32_t ll128_shift = 11;        // 2^11 lines of 128 bytes: 240 KiB

  std::uint32_t shift(cuda::DeviceProtocol protocol) const;
  std::uint64_t way_bytes(cuda::DeviceProtocol protocol) const;
  std::uint64_t channel_bytes() const;
  std::uint64_t link_bytes() const { return channel_bytes() * channels; }
  // Of one end of a relayed link, for all channels.
  std::uint64_t relay_words_bytes() const;
  std::uint64_t relay_rings_bytes() const { return (slot_bytes << slot_shift) * channels; }
  // The most that a piece may have, where messages carry so many under a plan of that depth.
  std::uint64_t max_piece(cuda::DeviceProtocol protocol, std::uint32_t pieces,
                          std::uint32_t min_depth) const;
};

struct DeviceLink {
  std::byte* own = nullptr;
  std::byte* peers = nullptr;  // where this rank's kernels reach it
  bool lends = true;           // never a relayed link
  // What a peer in another process lends lies in these; null: it is in this one.
  const cuda::DeviceRegion* regions = nullptr;
  // Of a relayed link: the rings of `own`, and of `peers`, which is a mirror then.
  std::byte* own_rings = nullptr;
  std::byte* peers_rings = nullptr;

  bool is_relayed() const { return own_rings != nullptr; }
};

// This rank's ends, to send to the peer and to receive from it.
cuda::DeviceEnd send_end(const DeviceShape& shape, const DeviceLink& link, std::uint32_t channel,
                         cuda::DeviceProtocol protocol);
cuda::DeviceEnd receive_end(const DeviceShape& shape, const DeviceLink& link, std::uint32_t channel,
                            cuda::DeviceProtocol protocol);

}  // namespace gyre::exec
