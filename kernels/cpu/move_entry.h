// Makes a MoveTable from the vector loops of an instruction set's Lanes (see move_loop.h). Its
// entries separate copies from reductions, pick the loop, and set the float environment.
#pragma once

#include "kernels/cpu/float_environment.h"
#include "kernels/cpu/move_loop.h"
#include "kernels/cpu/move_table.h"

#include <cstring>

namespace gyre::kernels {
namespace {

// From here on a C library may copy by "rep movsb". On AMD's Zen 3 and 4 that moves 2 GB/s, and a
// loop 30, where the target lies a few bytes behind the source in its page. So lie a slot and what
// malloc returns (sourceware.org/bugzilla, 30994).
constexpr std::uint64_t min_looped_bytes = 2048;

// Where `copies_by_string` says so, the processor's own copy from here on: it takes over a line
// that another core holds without reading it, and a loop reads it first. Zen 5, 128 KiB to another
// core through shared memory: 2.6 us and 4.7, or 4.6 and 19 if the cores are far from each other.
// Below, its start costs more: 4 KiB in a core's own cache took 29 ns, and the loop 16.
constexpr std::uint64_t min_string_bytes = 4096;

// Its stores may be seen in any order, but before those that follow it: a flag that is written
// afterwards still comes last (Intel SDM vol. 3A, fast-string operation and out-of-order stores).
inline void copy_string(void* target, const void* source, std::uint64_t bytes) {
  __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
}

// Bytes to all targets that are not the source; several targets are written from one read.
template <typename ByteLanes>
void copy_bytes(const MoveOperands& move, std::uint64_t bytes) {
  if (move.target_count == 1 && move.streamed == 0) {
    if (move.targets[0] == move.sources[0]) return;
    if (bytes >= min_string_bytes && copies_by_string)
      return copy_string(move.targets[0], move.sources[0], bytes);
    if (bytes >= min_looped_bytes) return reduce<ByteLanes, Or, 1, false>(move, bytes);
    std::memcpy(move.targets[0], move.sources[0], bytes);
    return;
  }
  constexpr std::uint32_t group_targets = 16;
  void* targets[group_targets];
  MoveOperands group;
  group.sources = move.sources;
  group.source_count = 1;
  group.targets = targets;
  const bool by_string = bytes >= min_string_bytes && copies_by_string;
  for (std::uint32_t t = 0; t < move.target_count; ++t) {
    const bool is_streamed = t < 32 && (move.streamed >> t & 1) != 0;
    if (move.targets[t] != move.sources[0] && by_string && !is_streamed) {
      copy_string(move.targets[t], move.sources[0], bytes);
    } else if (move.targets[t] != move.sources[0]) {
      group.streamed |= static_cast<std::uint32_t>(is_streamed) << group.target_count;
      targets[group.target_count++] = move.targets[t];
    }
    const bool full = group.target_count == group_targets || t + 1 == move.target_count;
    if (!full || group.target_count == 0) continue;
    // A loop that knows its one source is short, so that the processor sees more loads ahead: 64
    // MiB from memory take 0.8 to 0.9 of the time.
    reduce<ByteLanes, Or, 1, false>(group, bytes);
    group.target_count = 0;
    group.streamed = 0;
  }
}

template <typename ByteLanes>
void copy_entry(const MoveOperands& move) {
  if (move.count > 0) copy_bytes<ByteLanes>(move, move.count);
}

template <typename Lanes, auto body>
GYRE_ALWAYS_INLINE void call(const MoveOperands& move, std::uint64_t bytes) {
  if constexpr (Lanes::is_float)
    with_float_environment<body>(move, bytes);
  else
    body(move, bytes);
}

// What a table holds: sees to copies, then picks the loop. The loops without pre- and
// post-operation run on PlainLanes, which several types share where their bits come out alike.
template <typename Lanes, typename PlainLanes, typename ByteLanes, typename Op, bool may_adjust>
void entry(const MoveOperands& move) {
  if (move.count == 0) return;
  const std::uint64_t bytes = move.count * Lanes::element_size;
  if (may_adjust && (move.pre_source >= 0 || move.divisor != 1))
    return call<Lanes, reduce<Lanes, Op, 0, may_adjust>>(move, bytes);
  if (move.source_count == 1) return copy_bytes<ByteLanes>(move, bytes);
  if (move.source_count == 2)
    return call<PlainLanes, reduce<PlainLanes, Op, 2, false>>(move, bytes);
  call<PlainLanes, reduce<PlainLanes, Op, 0, false>>(move, bytes);
}

template <typename Lanes, typename PlainLanes, typename ByteLanes>
constexpr void fill_row(MoveTable& table, ElementType type) {
  table.at(type, ReduceOp::sum) = entry<Lanes, PlainLanes, ByteLanes, Add, true>;
  table.at(type, ReduceOp::avg) = entry<Lanes, PlainLanes, ByteLanes, Add, true>;
  table.at(type, ReduceOp::pre_mul_sum) = entry<Lanes, PlainLanes, ByteLanes, Add, true>;
  table.at(type, ReduceOp::prod) = entry<Lanes, PlainLanes, ByteLanes, Multiply, false>;
  table.at(type, ReduceOp::min) = entry<Lanes, Lanes, ByteLanes, Minimum, false>;
  table.at(type, ReduceOp::max) = entry<Lanes, Lanes, ByteLanes, Maximum, false>;
  if constexpr (!Lanes::is_float) {
    table.at(type, ReduceOp::band) = entry<Lanes, ByteLanes, ByteLanes, And, false>;
    table.at(type, ReduceOp::bor) = entry<Lanes, ByteLanes, ByteLanes, Or, false>;
    table.at(type, ReduceOp::bxor) = entry<Lanes, ByteLanes, ByteLanes, Xor, false>;
  }
}

// The whole table of a Set, which names its lanes.
template <typename Set>
constexpr MoveTable make_table() {
  using ByteLanes = typename Set::ByteLanes;
  using U8 = typename Set::template IntegerLanes<std::uint8_t>;
  using U32 = typename Set::template IntegerLanes<std::uint32_t>;
  using U64 = typename Set::template IntegerLanes<std::uint64_t>;
  MoveTable table;
  fill_row<typename Set::template IntegerLanes<std::int8_t>, U8, ByteLanes>(table,
                                                                            ElementType::int8);
  fill_row<U8, U8, ByteLanes>(table, ElementType::uint8);
  fill_row<typename Set::template IntegerLanes<std::int32_t>, U32, ByteLanes>(table,
                                                                              ElementType::int32);
  fill_row<U32, U32, ByteLanes>(table, ElementType::uint32);
  fill_row<typename Set::template IntegerLanes<std::int64_t>, U64, ByteLanes>(table,
                                                                              ElementType::int64);
  fill_row<U64, U64, ByteLanes>(table, ElementType::uint64);
  fill_row<typename Set::Float16, typename Set::Float16, ByteLanes>(table, ElementType::float16);
  fill_row<typename Set::Float32, typename Set::Float32, ByteLanes>(table, ElementType::float32);
  fill_row<typename Set::Float64, typename Set::Float64, ByteLanes>(table, ElementType::float64);
  fill_row<typename Set::BFloat16, typename Set::BFloat16, ByteLanes>(table, ElementType::bfloat16);
  fill_row<typename Set::Float8E4M3, typename Set::Float8E4M3, ByteLanes>(table,
                                                                          ElementType::float8_e4m3);
  fill_row<typename Set::Float8E5M2, typename Set::Float8E5M2, ByteLanes>(table,
                                                                          ElementType::float8_e5m2);
  table.copy = copy_entry<ByteLanes>;
  return table;
}

}  // namespace
}  // namespace gyre::kernels
