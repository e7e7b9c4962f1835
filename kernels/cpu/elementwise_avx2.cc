// The elementwise loops for AVX2 and F16C.
#include "kernels/cpu/elementwise_loops.h"

namespace gyre::kernels {
const ElementwiseTable elementwise_avx2 = make_elementwise_table();
}  // namespace gyre::kernels
