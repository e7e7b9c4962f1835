// Relays between two halves of a link in host memory, over real transports. The test plays the
// kernels' part: it writes the link's words as kernels/cuda/simple.h does.
#pragma once

#include "lib/cuda/device_relay.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace gyre::tests {

inline constexpr exec::DeviceShape small_relay_shape = {
    .channels = 3, .slot_bytes = 256, .slot_shift = 1, .ll_shift = 2, .ll128_shift = 2};

inline std::uint64_t load_word(const std::uint64_t* word) {
  return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
}
inline void store_word(std::uint64_t* word, std::uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

// What a rank has of the link, and its kernels' ends on each channel.
struct RelayHalf {
  struct Line {
    alignas(128) std::byte bytes[128];
  };
  const exec::DeviceShape shape;
  std::vector<Line> own, mirror, own_rings, mirror_rings;
  exec::DeviceLink link;

  RelayHalf(const exec::DeviceShape& wanted, std::uint64_t first)
      : shape(wanted),
        own(shape.relay_words_bytes() / 128),
        mirror(own.size()),
        own_rings(shape.relay_rings_bytes() / 128),
        mirror_rings(own_rings.size()) {
    link = {.own = own[0].bytes,
            .peers = mirror[0].bytes,
            .lends = false,
            .own_rings = own_rings[0].bytes,
            .peers_rings = mirror_rings[0].bytes};
    for (std::uint32_t channel = 0; channel < shape.channels; ++channel)
      for (const cuda::DeviceEnd& end : {sender(channel), receiver(channel)})
        *end.told = *const_cast<std::uint64_t*>(end.heard) = *end.next = first;
  }
  cuda::DeviceEnd sender(std::uint32_t channel) const {
    return send_end(shape, link, channel, cuda::DeviceProtocol::simple);
  }
  cuda::DeviceEnd receiver(std::uint32_t channel) const {
    return receive_end(shape, link, channel, cuda::DeviceProtocol::simple);
  }
};

inline std::uint32_t relayed_bytes(const exec::DeviceShape& shape, std::uint64_t number) {
  const auto most = static_cast<std::uint32_t>(shape.slot_bytes);
  const std::array<std::uint32_t, 5> lengths = {most, 0, 1, most / 2 + 1, most / 4};
  return lengths[number % lengths.size()];
}

inline bool relay_send(const exec::DeviceShape& shape, const cuda::DeviceEnd& end) {
  const std::uint64_t next = *end.next, slots = 1ULL << shape.slot_shift;
  if (next - load_word(end.heard) >= slots) return false;
  const std::uint64_t slot = next & (slots - 1);
  const std::uint32_t bytes = relayed_bytes(shape, next);
  fill(end.ring + slot * shape.slot_bytes, bytes, next);
  end.notes[slot] = {transport::message_flag(next + 1, 7), bytes, transport::DeliveryMode::staged,
                     0};
  store_word(end.told, *end.next = next + 1);
  return true;
}

// False if nothing is there; what is there has to be what was sent.
inline bool relay_receive(const exec::DeviceShape& shape, const cuda::DeviceEnd& end) {
  const std::uint64_t next = *end.next, slots = 1ULL << shape.slot_shift;
  if (load_word(end.heard) == next) return false;
  REQUIRE(load_word(end.heard) - next <= slots);
  const std::uint64_t slot = next & (slots - 1);
  const transport::SlotHeader note = end.notes[slot];
  REQUIRE(note.flag == transport::message_flag(next + 1, 7));
  REQUIRE(note.bytes == relayed_bytes(shape, next));
  REQUIRE(note.delivery == transport::DeliveryMode::staged);
  REQUIRE(is_filled(end.ring + slot * shape.slot_bytes, note.bytes, next));
  store_word(end.told, *end.next = next + 1);
  return true;
}

// Both halves, rank 0's and rank 1's, each with a relay.
struct RelayPair {
  struct Options {
    exec::DeviceShape shape = small_relay_shape;
    std::uint64_t first = 0;
    // Of each half: its mirror's rings and its own are memory that NICs may have.
    std::array<bool, 2> holds = {false, false}, lends = {false, false};
    // Of each half: its mirror's rings and its own are memory of a GPU, by their address.
    std::array<bool, 2> mirror_on_gpu = {false, false}, own_on_gpu = {false, false};
    bool needs_flush = true;
    std::function<void(const RelayPair&)> before_relays = {};  // the halves are there
  };
  explicit RelayPair(Kind kind) : RelayPair(kind, Options{}) {}
  RelayPair(Kind kind, const Options& options)
      : near(kind),
        other(kind),
        halves{RelayHalf(options.shape, options.first), RelayHalf(options.shape, options.first)} {
    Side& far = is_one_process(kind) ? near : other;
    const transport::FifoShape fifo = exec::DeviceRelay::fifo_shape(options.shape);
    Link there = open_link(far, near, fifo), back = open_link(near, far, fifo);
    INFO(there.status.message() << back.status.message());
    REQUIRE(there.status.ok());
    REQUIRE(back.status.ok());
    const std::size_t bytes = options.shape.relay_rings_bytes();
    for (std::size_t i = 0; i < 2; ++i) {
      Side& side = i == 0 ? near : far;
      const auto add = [&](std::byte* rings, bool is_lent, bool is_on_gpu) {
        if (!is_on_gpu && !is_lent) return;
        const auto of_gpu = std::make_shared<transport::GpuBuffer>(
            transport::GpuBuffer{{rings, bytes}, {}, options.needs_flush});
        lasting.emplace_back(transport::LastingBufferTraits::Handle{
            side.lasting,
            is_on_gpu ? side.lasting->add_gpu(of_gpu) : side.lasting->add({rings, bytes})});
      };
      add(halves[i].link.peers_rings, options.holds[i], options.mirror_on_gpu[i]);
      add(halves[i].link.own_rings, options.lends[i], options.own_on_gpu[i]);
    }
    if (options.before_relays) options.before_relays(*this);
    const auto places = [&](std::size_t i) {
      return exec::RelayPlaces{options.own_on_gpu[i], options.mirror_on_gpu[i]};
    };
    relays[0] = std::make_unique<exec::DeviceRelay>(
        1, options.shape, halves[0].link, std::move(there.sender), std::move(back.receiver),
        options.first, places(0));
    relays[1] = std::make_unique<exec::DeviceRelay>(
        0, options.shape, halves[1].link, std::move(back.sender), std::move(there.receiver),
        options.first, places(1));
  }
  // Until `ready`, ten seconds at most.
  template <typename Ready>
  bool turn_until(Ready&& ready) {
    const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
    unsigned turns = 0;
    while (!ready()) {
      if (SystemClock::read() > end_ns) return false;
      bool moved = false;  // if not, a thread of the fake network's may have to run first
      for (auto& relay : relays) {
        if (relay == nullptr) continue;
        if (!relay->advance(moved).ok()) return false;
        // As who waits for long.
        const std::int64_t now_ns = SystemClock::read();
        if (++turns % 512 == 0 && !relay->look_at_peer(now_ns, 5 * ns_per_s).ok()) return false;
      }
      if (!moved) std::this_thread::yield();
    }
    return true;
  }
  // So many messages on all channels, both ways; `slowness`: of receivers.
  bool stream(std::uint64_t messages, std::uint64_t first, unsigned slowness, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const exec::DeviceShape& shape = halves[0].shape;
    return turn_until([&] {
      bool all = true;
      for (RelayHalf& half : halves)
        for (std::uint32_t channel = 0; channel < shape.channels; ++channel) {
          const cuda::DeviceEnd out = half.sender(channel), in = half.receiver(channel);
          for (auto tries = random() % 3; tries > 0 && *out.next - first < messages; --tries)
            (void)relay_send(shape, out);
          if (random() % slowness == 0) (void)relay_receive(shape, in);
          all &= *out.next - first == messages && *in.next - first == messages;
        }
      return all;
    });
  }
  void leave() {
    for (auto& relay : relays) relay->leave();
    CHECK(turn_until([&] { return relays[0]->has_left() && relays[1]->has_left(); }));
  }

  Side near, other;
  std::array<RelayHalf, 2> halves;
  std::vector<transport::LastingBuffer> lasting;
  std::array<std::unique_ptr<exec::DeviceRelay>, 2> relays;
};

// Over which the two relays of one process may meet.
inline std::vector<Kind> relay_kinds() {
  std::vector<Kind> kinds = all_kinds();
  std::erase(kinds, Kind::self);
  std::erase(kinds, Kind::shm_processes);  // those take two
  return kinds;
}

}  // namespace gyre::tests
