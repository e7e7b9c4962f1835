// The bulk loops: they combine sources in memory into targets in memory. Each thread handles 16
// bytes at once and keeps several loads in flight. Every thread of the block takes part.
#pragma once

#include "kernels/cuda/bytes.h"
#include "kernels/cuda/multicast.h"
#include "kernels/cuda/walk.h"

namespace gyre::cuda {

// The places of a piece's operands and results, each found by one thread.
GYRE_DEVICE const PiecePlaces& find_places(Walk& walk, const Operands& on) {
  PiecePlaces& places = walk.state.places[walk.pieces++ & 1];
  GYRE_NO_UNROLL
  for (std::uint32_t i = device::thread_index(); i < on.sources + on.targets();
       i += device::thread_count()) {
    if (i < on.sources)
      places.sources[i] = on.source(i);
    else
      places.targets[i - on.sources] = on.target(i - on.sources);
  }
  device::block_barrier();
  return places;
}

// Packs `first`, `first + threads` and so on of one source; what lies behind the last is zeros.
template <bool whole, std::uint32_t unroll>
GYRE_DEVICE void load_packs(Bytes16 (&raw)[unroll], const std::byte* source, std::uint64_t first,
                            std::uint64_t packs) {
  const std::uint32_t threads = device::thread_count();
  GYRE_UNROLL
  for (std::uint32_t k = 0; k < unroll; ++k) {
    const std::uint64_t at = first + k * threads;
    raw[k] = Bytes16{0, 0};
    if (at < packs)
      raw[k] = whole ? device::load_16(source + 16 * at) : load_bytes(source + 16 * at, 16);
  }
}

template <bool whole, std::uint32_t unroll>
GYRE_DEVICE void store_packs(const Bytes16 (&raw)[unroll], std::byte* target, std::uint64_t first,
                             std::uint64_t packs) {
  const std::uint32_t threads = device::thread_count();
  GYRE_UNROLL
  for (std::uint32_t k = 0; k < unroll; ++k) {
    const std::uint64_t at = first + k * threads;
    if (at >= packs) continue;
    if (whole)
      device::store_16(target + 16 * at, raw[k]);
    else
      store_bytes(target + 16 * at, raw[k], 16);
  }
}

template <typename Reducer, std::uint32_t unroll>
GYRE_DEVICE void combine_packs(typename Reducer::Value (&values)[unroll], Bytes16 (&raw)[unroll],
                               const Operands& on, std::uint32_t source) {
  GYRE_UNROLL
  for (std::uint32_t k = 0; k < unroll; ++k) {
    if (Reducer::adjusts && on.scales && on.is_own(source))
      raw[k] = Reducer::scaled(raw[k], on.how);
    if (source == 0)
      values[k] = Reducer::widen(raw[k]);
    else
      Reducer::combine(values[k], raw[k], on.how);
  }
}

// `whole`: every pointer is 16-aligned. The loads of two sources are under way at one time. They
// have registers of their own: a copy between two would wait for its load.
template <typename Reducer, bool whole>
GYRE_DEVICE void reduce_packs(const Operands& on, const PiecePlaces& places, std::uint64_t begin,
                              std::uint64_t packs) {
  constexpr std::uint32_t unroll = !whole ? 1 : Reducer::elements > 8 ? 2 : 4;
  const std::uint32_t stride = device::thread_count() * unroll;
  for (std::uint64_t first = device::thread_index(); first < packs; first += stride) {
    typename Reducer::Value values[unroll] = {};
    Bytes16 even[unroll], odd[unroll];
    GYRE_NO_UNROLL
    for (std::uint32_t s = 0; s < on.sources; s += 2) {
      const bool is_pair = s + 1 < on.sources;
      load_packs<whole>(even, places.sources[s] + begin, first, packs);
      if (is_pair) load_packs<whole>(odd, places.sources[s + 1] + begin, first, packs);
      combine_packs<Reducer>(values, even, on, s);
      if (is_pair) combine_packs<Reducer>(values, odd, on, s + 1);
    }
    GYRE_UNROLL
    for (std::uint32_t k = 0; k < unroll; ++k) even[k] = Reducer::narrow(values[k], on.how);
    GYRE_NO_UNROLL
    for (std::uint32_t t = 0; t < on.targets(); ++t)
      if (std::byte* const target = places.targets[t]; target != nullptr)
        store_packs<whole>(even, target + begin, first, packs);
  }
}

template <bool whole>
GYRE_DEVICE void copy_packs(const Operands& on, const PiecePlaces& places, std::uint64_t begin,
                            std::uint64_t packs) {
  constexpr std::uint32_t unroll = whole ? 8 : 1;
  const std::uint32_t stride = device::thread_count() * unroll;
  const std::byte* const source = places.sources[0];
  for (std::uint64_t first = device::thread_index(); first < packs; first += stride) {
    Bytes16 raw[unroll];
    load_packs<whole>(raw, source + begin, first, packs);
    GYRE_NO_UNROLL
    for (std::uint32_t t = 0; t < on.targets(); ++t)
      if (std::byte* const target = places.targets[t]; target != nullptr && target != source)
        store_packs<whole>(raw, target + begin, first, packs);
  }
}

// Fewer than 16 bytes, by one thread.
template <typename Reducer>
GYRE_DEVICE void move_few(const Operands& on, const PiecePlaces& places, std::uint64_t begin,
                          std::uint32_t bytes) {
  Bytes16 result = load_bytes(places.sources[0] + begin, bytes);
  if (on.changes) {
    if (Reducer::adjusts && on.scales && on.is_own(0)) result = Reducer::scaled(result, on.how);
    typename Reducer::Value value = Reducer::widen(result);
    GYRE_NO_UNROLL
    for (std::uint32_t s = 1; s < on.sources; ++s) {
      Bytes16 raw = load_bytes(places.sources[s] + begin, bytes);
      if (Reducer::adjusts && on.scales && on.is_own(s)) raw = Reducer::scaled(raw, on.how);
      Reducer::combine(value, raw, on.how);
    }
    result = Reducer::narrow(value, on.how);
  }
  GYRE_NO_UNROLL
  for (std::uint32_t t = 0; t < on.targets(); ++t) {
    std::byte* target = places.targets[t];
    if (target == nullptr || (!on.changes && target == places.sources[0])) continue;
    store_bytes(target + begin, result, bytes);
  }
}

// Bytes before the first address that is 16-aligned in every buffer, or 16 if there is none.
GYRE_DEVICE std::uint32_t lead_of(const Operands& on, const PiecePlaces& places,
                                  std::uint32_t element_bytes) {
  const std::uint32_t first = misalignment(places.sources[0]);
  std::uint32_t differs = 0;
  GYRE_NO_UNROLL
  for (std::uint32_t s = 1; s < on.sources; ++s) differs |= first ^ misalignment(places.sources[s]);
  GYRE_NO_UNROLL
  for (std::uint32_t t = 0; t < on.targets(); ++t)
    if (places.targets[t] != nullptr) differs |= first ^ misalignment(places.targets[t]);
  const std::uint32_t lead = (16 - first) & 15;
  return differs == 0 && (lead & (element_bytes - 1)) == 0 ? lead : 16;
}

template <typename Reducer>
GYRE_DEVICE void move_piece(Walk& walk, const Operands& on) {
  const PiecePlaces& places = find_places(walk, on);
  const std::uint64_t bytes = on.piece.bytes;
  std::uint32_t lead = lead_of(on, places, on.walk.call.element_bytes);
  const bool whole = lead < 16;
  if (!whole) lead = 0;
  if (lead > bytes) lead = static_cast<std::uint32_t>(bytes);
  const std::uint64_t packs = (bytes - lead) / 16;
  const auto rest = static_cast<std::uint32_t>((bytes - lead) % 16);
  const std::uint32_t place_from_end = device::thread_count() - 1 - device::thread_index();
  const std::uint32_t few = place_from_end == 0 ? rest : place_from_end == 1 ? lead : 0;
  if (few > 0) move_few<Reducer>(on, places, place_from_end == 0 ? bytes - rest : 0, few);
  if (packs == 0) return;
  if (whole && move_in_switch<Reducer>(on, lead, packs)) return;
  if (on.changes && whole) return reduce_packs<Reducer, true>(on, places, lead, packs);
  if (on.changes) return reduce_packs<Reducer, false>(on, places, 0, packs);
  if (whole) return copy_packs<true>(on, places, lead, packs);
  copy_packs<false>(on, places, 0, packs);
}

}  // namespace gyre::cuda
