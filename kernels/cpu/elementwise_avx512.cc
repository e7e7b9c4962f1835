// The elementwise loops for AVX-512.
#include "kernels/cpu/elementwise_loops.h"

namespace gyre::kernels {
const ElementwiseTable elementwise_avx512_table = make_elementwise_table();
}  // namespace gyre::kernels
