// Chooses the function of each move: the best function among the tables of the instruction sets
// that this processor has, else the scalar reference.
#include "kernels/cpu/move.h"
#include "kernels/cpu/move_table.h"

#include <algorithm>
#include <initializer_list>

#ifdef GYRE_KERNELS_X86
#include <cpuid.h>
#endif

namespace gyre::kernels {
namespace {

#ifdef GYRE_KERNELS_X86
// CPUID's answer for a leaf; zeros if there is none. Intel SDM vol. 2A.
struct ProcessorLeaf {
  unsigned a = 0, b = 0, c = 0, d = 0;

  explicit ProcessorLeaf(unsigned leaf) { __get_cpuid_count(leaf, 0, &a, &b, &c, &d); }
};

constexpr bool has_all(unsigned word, std::initializer_list<int> bits) {
  return std::ranges::all_of(bits, [word](int bit) { return (word >> bit & 1U) != 0; });
}

// The registers that the operating system keeps for each thread (XCR0): Intel SDM vol. 1, 13.3.
unsigned kept_registers() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Not by __builtin_cpu_supports(): clang 14 has no name for F16C and AVX512-FP16, and Zig's runtime
// library lacks its other half.
InstructionSet detect() {
  const ProcessorLeaf first(1);
  const ProcessorLeaf seventh(7);
  // XGETBV, AVX, F16C; XMM and YMM registers; AVX2.
  const bool avx2 = has_all(first.c, {27, 28, 29}) && has_all(kept_registers(), {1, 2}) &&
                    has_all(seventh.b, {5});
  if (!avx2) return InstructionSet::scalar;
  // AVX512-F, DQ, BW and VL; mask registers, upper halves of 16 ZMM registers, the 16 others.
  const bool avx512 = has_all(seventh.b, {16, 17, 30, 31}) && has_all(kept_registers(), {5, 6, 7});
  if (!avx512) return InstructionSet::avx2;
#ifdef GYRE_KERNELS_FP16
  if (has_all(seventh.d, {23})) return InstructionSet::avx512fp16;
#endif
  return InstructionSet::avx512;
}

// Measured on AMD's family 26 (Zen 5). Zen 3 and 4 are slow at some places (move_entry.h), and on
// Intel nobody has compared it.
bool likes_string_copies() {
  const ProcessorLeaf maker(0);
  if (maker.b != signature_AMD_ebx || maker.c != signature_AMD_ecx || maker.d != signature_AMD_edx)
    return false;
  const unsigned version = ProcessorLeaf(1).a;
  const unsigned family = version >> 8 & 0xF;
  return family == 0xF && family + (version >> 20 & 0xFF) >= 26;
}
#else
InstructionSet detect() { return InstructionSet::scalar; }
bool likes_string_copies() { return false; }
#endif

void touch_nothing(const MoveOperands&) {}

void lay_over(MoveTable& table, const MoveTable& better) {
  for (int type = 0; type < element_type_count; ++type) {
    for (int op = 0; op < reduce_op_count; ++op)
      if (better.reduce[type][op] != nullptr) table.reduce[type][op] = better.reduce[type][op];
  }
  if (better.copy != nullptr) table.copy = better.copy;
}

MoveTable complete_table(InstructionSet set) {
  MoveTable table;
  for (auto& row : table.reduce) std::fill(std::begin(row), std::end(row), touch_nothing);
  lay_over(table, reference_table);
#ifdef GYRE_KERNELS_X86
  if (set >= InstructionSet::avx2) lay_over(table, avx2_table);
  if (set >= InstructionSet::avx512) lay_over(table, avx512_table);
#ifdef GYRE_KERNELS_FP16
  if (set >= InstructionSet::avx512fp16) lay_over(table, avx512fp16_table);
#endif
#else
  static_cast<void>(set);
#endif
  return table;
}

struct Tables {
  InstructionSet best = detect();
  MoveTable of[instruction_set_count];

  Tables() {
    for (int set = 0; set < instruction_set_count; ++set)
      of[set] = complete_table(std::min(static_cast<InstructionSet>(set), best));
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

}  // namespace

bool copies_by_string = likes_string_copies();

std::uint64_t min_streamed_bytes() {
  return copies_by_string ? std::uint64_t{16} << 20 : std::uint64_t{4} << 20;
}

InstructionSet best_instruction_set() { return tables().best; }

const char* instruction_set_name(InstructionSet set) {
  constexpr const char* names[instruction_set_count] = {"scalar", "avx2", "avx512", "avx512fp16"};
  return names[static_cast<int>(set)];
}

MoveFunction find_move(ElementType type, ReduceOp op, InstructionSet set) {
  return tables().of[static_cast<int>(set)].at(type, op);
}

MoveFunction find_move(ElementType type, ReduceOp op) {
  return find_move(type, op, best_instruction_set());
}

void copy_move(const MoveOperands& move, InstructionSet set) {
  tables().of[static_cast<int>(set)].copy(move);
}

void copy_move(const MoveOperands& move) { copy_move(move, best_instruction_set()); }

void copy_move(const void* source, void* target, std::uint64_t bytes, bool streamed) {
  MoveOperands move;
  move.sources = &source;
  move.source_count = 1;
  move.targets = &target;
  move.target_count = 1;
  move.count = bytes;
  move.streamed = streamed ? 1 : 0;
  copy_move(move);
}

}  // namespace gyre::kernels
