// MoveTable: one instruction set's functions, one for each (type, reduction) in which it is
// fastest, else null. table.cc combines the tables. Private to kernels/cpu.
#pragma once

#include "kernels/cpu/move.h"

namespace gyre::kernels {

struct MoveTable {
  MoveFunction reduce[element_type_count][reduce_op_count] = {};
  MoveFunction copy = nullptr;  // counts bytes

  constexpr MoveFunction& at(ElementType type, ReduceOp op) {
    return reduce[static_cast<int>(type)][static_cast<int>(op)];
  }
  constexpr MoveFunction at(ElementType type, ReduceOp op) const {
    return reduce[static_cast<int>(type)][static_cast<int>(op)];
  }
};

// Whether x86's "rep movsb" is this processor's best way to copy; a test may choose otherwise.
extern bool copies_by_string;

extern const MoveTable reference_table;  // complete
#ifdef GYRE_KERNELS_X86
extern const MoveTable avx2_table;
extern const MoveTable avx512_table;
#endif
#ifdef GYRE_KERNELS_FP16
extern const MoveTable avx512fp16_table;
#endif

}  // namespace gyre::kernels
