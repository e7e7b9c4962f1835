// The bulk loops: they combine sources in memory into targets in memory. Each thread handles 16
// bytes at once and keeps several loads in flight. Every thread of the block takes part.
#pragma once

#include "kernels/cuda/bytes.h"
#include "kernels/cuda/multicast.h"
#include "kernels/cuda/walk.h"

namespace gyre::cuda {

// `whole`: every pointer is 16-aligned.
template <typename Reducer, bool whole>
GYRE_DEVICE void reduce_packs(const Operands& on, std::uint64_t begin, std::uint64_t packs) {
  constexpr std::uint32_t unroll = !whole ? 1 : Reducer::elements > 8 ? 2 : 4;
  const std::uint32_t threads = device::thread_count();
  for (std::uint64_t first = device::thread_index(); first < packs; first += threads * unroll) {
    typename Reducer::Value values[unroll] = {};
    for (std::uint32_t s = 0; s < on.sources; ++s) {
      const std::byte* source = on.source(s) + begin;
      Bytes16 raw[unroll];
      GYRE_UNROLL
      for (std::uint32_t k = 0; k < unroll; ++k) {
        const std::uint64_t at = first + k * threads;
        raw[k] = Bytes16{0, 0};
        if (at < packs)
          raw[k] = whole ? device::load_16(source + 16 * at) : load_bytes(source + 16 * at, 16);
      }
      GYRE_UNROLL
      for (std::uint32_t k = 0; k < unroll; ++k) {
        if (Reducer::adjusts && on.scales && on.is_own(s)) raw[k] = Reducer::scaled(raw[k], on.how);
        if (s == 0)
          values[k] = Reducer::widen(raw[k]);
        else
          Reducer::combine(values[k], raw[k], on.how);
      }
    }
    GYRE_UNROLL
    for (std::uint32_t k = 0; k < unroll; ++k) {
      const std::uint64_t at = first + k * threads;
      if (at >= packs) continue;
      const Bytes16 result = Reducer::narrow(values[k], on.how);
      for (std::uint32_t t = 0; t < on.targets(); ++t) {
        std::byte* target = on.target(t);
        if (target == nullptr) continue;
        if (whole)
          device::store_16(target + begin + 16 * at, result);
        else
          store_bytes(target + begin + 16 * at, result, 16);
      }
    }
  }
}

template <bool whole>
GYRE_DEVICE void copy_packs(const Operands& on, std::uint64_t begin, std::uint64_t packs) {
  constexpr std::uint32_t unroll = whole ? 4 : 1;
  const std::uint32_t threads = device::thread_count();
  const std::byte* const source = on.source(0);
  for (std::uint64_t first = device::thread_index(); first < packs; first += threads * unroll) {
    Bytes16 raw[unroll];
    GYRE_UNROLL
    for (std::uint32_t k = 0; k < unroll; ++k) {
      const std::uint64_t at = first + k * threads;
      if (at >= packs) continue;
      const std::byte* place = source + begin + 16 * at;
      raw[k] = whole ? device::load_16(place) : load_bytes(place, 16);
    }
    for (std::uint32_t t = 0; t < on.targets(); ++t) {
      std::byte* target = on.target(t);
      if (target == nullptr || target == source) continue;
      GYRE_UNROLL
      for (std::uint32_t k = 0; k < unroll; ++k) {
        const std::uint64_t at = first + k * threads;
        if (at >= packs) continue;
        if (whole)
          device::store_16(target + begin + 16 * at, raw[k]);
        else
          store_bytes(target + begin + 16 * at, raw[k], 16);
      }
    }
  }
}

// Fewer than 16 bytes, by one thread.
template <typename Reducer>
GYRE_DEVICE void move_few(const Operands& on, std::uint64_t begin, std::uint32_t bytes) {
  Bytes16 result = load_bytes(on.source(0) + begin, bytes);
  if (on.changes) {
    if (Reducer::adjusts && on.scales && on.is_own(0)) result = Reducer::scaled(result, on.how);
    typename Reducer::Value value = Reducer::widen(result);
    GYRE_NO_UNROLL
    for (std::uint32_t s = 1; s < on.sources; ++s) {
      Bytes16 raw = load_bytes(on.source(s) + begin, bytes);
      if (Reducer::adjusts && on.scales && on.is_own(s)) raw = Reducer::scaled(raw, on.how);
      Reducer::combine(value, raw, on.how);
    }
    result = Reducer::narrow(value, on.how);
  }
  GYRE_NO_UNROLL
  for (std::uint32_t t = 0; t < on.targets(); ++t) {
    std::byte* target = on.target(t);
    if (target == nullptr || (!on.changes && target == on.source(0))) continue;
    store_bytes(target + begin, result, bytes);
  }
}

// Bytes before the first address that is 16-aligned in every buffer, or 16 if there is none.
GYRE_DEVICE std::uint32_t lead_of(const Operands& on, std::uint32_t element_bytes) {
  const std::uint32_t first = misalignment(on.source(0));
  std::uint32_t differs = 0;
  GYRE_NO_UNROLL
  for (std::uint32_t s = 1; s < on.sources; ++s) differs |= first ^ misalignment(on.source(s));
  GYRE_NO_UNROLL
  for (std::uint32_t t = 0; t < on.targets(); ++t)
    if (on.target(t) != nullptr) differs |= first ^ misalignment(on.target(t));
  const std::uint32_t lead = (16 - first) & 15;
  return differs == 0 && (lead & (element_bytes - 1)) == 0 ? lead : 16;
}

template <typename Reducer>
GYRE_DEVICE void move_piece(const Operands& on) {
  const std::uint64_t bytes = on.piece.bytes;
  std::uint32_t lead = lead_of(on, on.walk.call.element_bytes);
  const bool whole = lead < 16;
  if (!whole) lead = 0;
  if (lead > bytes) lead = static_cast<std::uint32_t>(bytes);
  const std::uint64_t packs = (bytes - lead) / 16;
  const auto rest = static_cast<std::uint32_t>((bytes - lead) % 16);
  const std::uint32_t place_from_end = device::thread_count() - 1 - device::thread_index();
  const std::uint32_t few = place_from_end == 0 ? rest : place_from_end == 1 ? lead : 0;
  if (few > 0) move_few<Reducer>(on, place_from_end == 0 ? bytes - rest : 0, few);
  if (packs == 0) return;
  if (whole && move_in_switch<Reducer>(on, lead, packs)) return;
  if (on.changes && whole) return reduce_packs<Reducer, true>(on, lead, packs);
  if (on.changes) return reduce_packs<Reducer, false>(on, 0, packs);
  if (whole) return copy_packs<true>(on, lead, packs);
  copy_packs<false>(on, 0, packs);
}

}  // namespace gyre::cuda
