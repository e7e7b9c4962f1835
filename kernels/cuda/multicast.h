// If the buffers of all ranks are bound to one NVLink multicast group, the switch does a direct
// move's work for all links at once. It sums what one load reads from every rank, and writes one
// store to every rank. Two-shot all-reduce and reduce-scatter have such moves. plan::verify proves
// for direct delivery that these reads and writes are allowed at that time; only the order of the
// sum is the switch's. Not yet run on a machine that has such a switch.
#pragma once

#include "kernels/cuda/bytes.h"
#include "kernels/cuda/walk.h"

namespace gyre::cuda {

template <typename Element>
struct SwitchSum {
  static constexpr bool exists = false;
  GYRE_DEVICE static Bytes16 load(const std::byte*) { return {}; }
};
template <>
struct SwitchSum<Float32> {
  static constexpr bool exists = true;
  GYRE_DEVICE static Bytes16 load(const std::byte* place) {
    return device::multicast_sum_float32(place);
  }
};
template <>
struct SwitchSum<Float16> {
  static constexpr bool exists = true;
  GYRE_DEVICE static Bytes16 load(const std::byte* place) {
    return device::multicast_sum_float16(place);
  }
};
template <>
struct SwitchSum<BFloat16> {
  static constexpr bool exists = true;
  GYRE_DEVICE static Bytes16 load(const std::byte* place) {
    return device::multicast_sum_bfloat16(place);
  }
};

// Whether a move takes from, or sends to, all other ranks.
GYRE_DEVICE bool is_everybody(const Operands& on, const plan::MoveLinks& links) {
  const plan::Lane& lane = on.walk.lane.lane;
  return lane.leads_to_all && links.count > 0 && links.count == lane.link_count;
}

// Where the group has what the move combines, if that is every rank's input at one place; or null.
// What the switch sums comes rounded, so a narrow average would be rounded twice.
template <typename Reducer>
GYRE_DEVICE const std::byte* summed_place(const Operands& on) {
  using InSwitch = SwitchSum<typename Reducer::ElementType>;
  const LaneCall& call = on.walk.call;
  const plan::MoveLinks& links = on.move.recv;
  if constexpr (Reducer::adjusts && InSwitch::exists) {
    const bool rounds_twice = on.how.divisor != 1 && sizeof(typename Reducer::Stored) < 4;
    if (call.everybodys_input == nullptr || on.scales || rounds_twice || !is_everybody(on, links))
      return nullptr;
    GYRE_NO_UNROLL
    for (std::uint32_t i = 0; i < links.count; ++i)
      if (on.walk.state.incoming[links[i]].lies != Lies::in_input) return nullptr;
    const std::uint64_t place = on.lent_place(true);
    return on.own == call.input + place ? call.everybodys_input + place : nullptr;
  } else {
    return nullptr;
  }
}

// Where the group has what the move writes, if that is every rank's output at one place; or null.
GYRE_DEVICE std::byte* spread_place(const Operands& on) {
  const LaneCall& call = on.walk.call;
  const plan::MoveLinks& links = on.move.send;
  if (call.everybodys_output == nullptr || !is_everybody(on, links)) return nullptr;
  GYRE_NO_UNROLL
  for (std::uint32_t i = 0; i < links.count; ++i)
    if (on.walk.state.outgoing[links[i]].delivery != transport::DeliveryMode::push) return nullptr;
  const std::uint64_t place = on.lent_place(false);
  return on.store == call.output + place ? call.everybodys_output + place : nullptr;
}

// False: there is no group for this move, and nothing was done. `begin` is where every buffer is
// 16-aligned.
template <typename Reducer>
GYRE_DEVICE bool move_in_switch(const Operands& on, std::uint64_t begin, std::uint64_t packs) {
  const std::byte* const sum = summed_place<Reducer>(on);
  std::byte* const spread = spread_place(on);
  // The switch spreads what it sums, or what is a copy. What it sums and does not spread is stored
  // here alone: to peers it would go link by link.
  const bool spreads = spread != nullptr && (sum != nullptr || !on.changes);
  const bool only_sums = spread == nullptr && sum != nullptr && on.move.send.count == 0;
  if (!spreads && !only_sums) return false;
  const std::byte* const source = (sum != nullptr ? sum : on.source(0)) + begin;
  if (misalignment(source) != 0) return false;
  if (spread != nullptr && misalignment(spread + begin) != 0) return false;

  constexpr std::uint32_t unroll = 4;
  const std::uint32_t threads = device::thread_count();
  device::alias_fence();
  for (std::uint64_t first = device::thread_index(); first < packs; first += threads * unroll) {
    Bytes16 raw[unroll];
    GYRE_UNROLL
    for (std::uint32_t k = 0; k < unroll; ++k) {
      const std::uint64_t at = 16 * (first + k * threads);
      if (at >= 16 * packs) continue;
      raw[k] = sum != nullptr ? SwitchSum<typename Reducer::ElementType>::load(source + at)
                              : device::load_16(source + at);
    }
    GYRE_UNROLL
    for (std::uint32_t k = 0; k < unroll; ++k) {
      const std::uint64_t at = begin + 16 * (first + k * threads);
      if (at >= begin + 16 * packs) continue;
      if (sum != nullptr) {
        auto value = Reducer::widen(raw[k]);
        raw[k] = Reducer::narrow(value, on.how);  // NaNs too become canonical
      }
      if (spread != nullptr)
        device::multicast_store(spread + at, raw[k]);
      else
        device::store_16(on.store + at, raw[k]);
    }
  }
  device::alias_fence();
  return true;
}

}  // namespace gyre::cuda
