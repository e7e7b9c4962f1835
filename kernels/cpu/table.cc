// Chooses the function of each move: the best function among the tables of the instruction sets
// that this processor has, else the scalar reference.
#include "kernels/cpu/move.h"
#include "kernels/cpu/move_table.h"

#include <algorithm>

#ifdef GYRE_KERNELS_X86
#include <cpuid.h>
#endif

namespace gyre::kernels {
namespace {

#ifdef GYRE_KERNELS_X86
// Two feature bits have no name in clang 14's __builtin_cpu_supports. Their registers are AVX's and
// AVX-512's, so the operating system's part is answered by those. CPUID leaves: Intel SDM vol. 2A.
bool has_f16c() {
  constexpr unsigned f16c = 1U << 29;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & f16c) != 0;
}

#ifdef GYRE_KERNELS_FP16
bool has_avx512fp16() {
  constexpr unsigned avx512_fp16 = 1U << 23;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & avx512_fp16) != 0;
}
#endif

InstructionSet detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return InstructionSet::scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return InstructionSet::avx2;
#ifdef GYRE_KERNELS_FP16
  if (has_avx512fp16()) return InstructionSet::avx512fp16;
#endif
  return InstructionSet::avx512;
}
#else
InstructionSet detect() { return InstructionSet::scalar; }
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

void copy_move(const void* source, void* target, std::uint64_t bytes) {
  MoveOperands move;
  move.sources = &source;
  move.source_count = 1;
  move.targets = &target;
  move.target_count = 1;
  move.count = bytes;
  copy_move(move);
}

}  // namespace gyre::kernels
