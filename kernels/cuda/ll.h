// ll: lines of 32 bytes: four times 4 bytes of payload and 4 bytes of flag. Only 8 bytes must
// arrive whole, so it works on any path. The flag holds the lap's number and an identification of
// the call. Laps count from 1, so zeroed memory belongs to no lap.
#pragma once

#include "kernels/cuda/lines.h"

namespace gyre::cuda {

struct LlLines {
  static constexpr std::uint32_t payload_bytes = 16;
  static constexpr std::uint32_t line_bytes = 32;
  static constexpr std::uint32_t parts = 1;  // threads for a line

  GYRE_DEVICE static std::uint64_t offset_of(std::uint32_t part) {
    return std::uint64_t{part} * payload_bytes;
  }
  GYRE_DEVICE static std::uint32_t bytes_of(std::uint32_t) { return payload_bytes; }

  GYRE_DEVICE static std::uint32_t flag_of(const Walk& walk, std::uint64_t number) {
    const auto lap = static_cast<std::uint32_t>((number >> walk.call.ring_shift) + 1);
    return lap << 24 | static_cast<std::uint32_t>(walk.call.signature & 0xffffff);
  }
  GYRE_DEVICE static bool is_other_call(std::uint64_t word, std::uint32_t flag) {
    const auto got = static_cast<std::uint32_t>(word >> 32);
    return got != flag && got >> 24 == flag >> 24 && got != 0;
  }

  GYRE_DEVICE static Bytes16 fetch(Walk& walk, const std::byte* ring, std::uint64_t number,
                                   std::uint32_t, bool active, std::uint32_t link) {
    if (!active || walk.stopped) return {0, 0};
    const std::byte* line = ring + (number & walk.ring_mask()) * line_bytes;
    const std::uint32_t flag = flag_of(walk, number);
    std::uint32_t polls = 0;
    while (true) {
      const Bytes16 low = device::load_flagged(line);
      const Bytes16 high = device::load_flagged(line + 16);
      const bool here = low.low >> 32 == flag && low.high >> 32 == flag && high.low >> 32 == flag &&
                        high.high >> 32 == flag;
      if (here)
        return {(low.low & 0xffffffff) | low.high << 32, (high.low & 0xffffffff) | high.high << 32};
      if (is_other_call(low.low, flag)) {
        walk.stop(Outcome::mismatch, WaitingFor::data, link);
        return {0, 0};
      }
      if (!walk.poll_again(polls, WaitingFor::data, link)) return {0, 0};
    }
  }

  GYRE_DEVICE static void put(const Walk& walk, std::byte* ring, std::uint64_t number,
                              std::uint32_t, bool active, const Bytes16& value) {
    if (!active) return;
    std::byte* line = ring + (number & walk.ring_mask()) * line_bytes;
    const std::uint64_t flag = std::uint64_t{flag_of(walk, number)} << 32;
    device::store_flagged(line, {(value.low & 0xffffffff) | flag, value.low >> 32 | flag});
    device::store_flagged(line + 16, {(value.high & 0xffffffff) | flag, value.high >> 32 | flag});
  }
};

using Ll = LineProtocol<LlLines>;

}  // namespace gyre::cuda
