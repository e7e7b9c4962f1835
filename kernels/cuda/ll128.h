// ll128: lines of 128 bytes with 120 of payload and a flag, for paths that deliver such a line
// whole. Eight threads share a line, 16 bytes each. The last one has 8 of payload and the flag,
// which is the line's number + 1 and an identification of the call.
#pragma once

#include "kernels/cuda/lines.h"

namespace gyre::cuda {

struct Ll128Lines {
  static constexpr std::uint32_t payload_bytes = 120;
  static constexpr std::uint32_t line_bytes = 128;
  static constexpr std::uint32_t parts = 8;

  GYRE_DEVICE static bool has_flag(std::uint32_t part) { return part % parts == parts - 1; }
  GYRE_DEVICE static std::uint64_t offset_of(std::uint32_t part) {
    return std::uint64_t{part / parts} * payload_bytes + part % parts * 16;
  }
  GYRE_DEVICE static std::uint32_t bytes_of(std::uint32_t part) { return has_flag(part) ? 8 : 16; }

  // The warp polls its four lines together; all of it goes on, or all of it stops. Stores of a line
  // are whole, but nobody promises the same of eight threads' loads: what came with the flag may be
  // older than it, so that all parts are loaded once more. NCCL does so too (prims_ll128.h, again
  // since 2.17.1).
  GYRE_DEVICE static Bytes16 fetch(Walk& walk, const std::byte* ring, std::uint64_t number,
                                   std::uint32_t part, bool active, std::uint32_t link) {
    if (walk.stopped) return {0, 0};
    const std::byte* place = nullptr;
    if (active) place = ring + (number & walk.ring_mask()) * line_bytes + part % parts * 16;
    const std::uint64_t flag = transport::message_flag(number + 1, walk.call.signature);
    std::uint32_t polls = 0;
    while (true) {
      const Bytes16 got = device::load_line_part(place);
      const bool lacks = active && has_flag(part) && got.high != flag;
      if (!device::warp_any(lacks)) {
        const Bytes16 whole = device::load_line_part(place);
        return {whole.low, has_flag(part) ? 0 : whole.high};
      }
      const bool is_other =
          lacks && transport::flag_sequence(got.high) == transport::flag_sequence(flag);
      const Outcome outcome =
          is_other ? Outcome::mismatch : walk.look(++polls, WaitingFor::data, link);
      if (!device::warp_any(outcome != Outcome::done)) continue;
      if (outcome != Outcome::done) walk.stop(outcome, WaitingFor::data, link);
      walk.stopped = true;
      return {0, 0};
    }
  }

  GYRE_DEVICE static void put(const Walk& walk, std::byte* ring, std::uint64_t number,
                              std::uint32_t part, bool active, const Bytes16& value) {
    std::byte* place = nullptr;
    if (active) place = ring + (number & walk.ring_mask()) * line_bytes + part % parts * 16;
    const std::uint64_t flag = transport::message_flag(number + 1, walk.call.signature);
    device::store_line_part(place, {value.low, has_flag(part) ? flag : value.high});
  }
};

using Ll128 = LineProtocol<Ll128Lines>;

}  // namespace gyre::cuda
