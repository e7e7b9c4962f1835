// The elementwise loops for AVX2 and F16C.
#include "kernels/cpu/elementwise_loops.h"

namespace gyre::kernels {
const ElementwiseTable elementwise_avx2_table = make_elementwise_table();
}  // namespace gyre::kernels
