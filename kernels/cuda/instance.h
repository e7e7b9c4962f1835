// A kernel for each protocol, of one class of types and one of operations. Meson makes a file for
// each pair, for nvcc and for the host's machine alike; see meson.build.
#pragma once

#include "kernels/cuda/ll.h"
#include "kernels/cuda/ll128.h"
#include "kernels/cuda/run_plan.h"
#include "kernels/cuda/simple.h"
#include "kernels/cuda/table.h"

namespace gyre::cuda {

#if defined(__CUDACC__)
// As kernel_name (kernel_name.h) calls them. One block for a multiprocessor is enough; for a second
// one ptxas would spill.
#define GYRE_KERNEL(Element, Op, Protocol, protocol)                                    \
  extern "C" __global__ void __launch_bounds__(max_threads, 1)                          \
      gyre_##Element##_##Op##_##protocol(const __grid_constant__ DeviceLaunch launch) { \
    run_plan<Protocol, Reducer<Element, Op>>(launch);                                   \
  }
#define GYRE_KERNELS(Element, Op)          \
  GYRE_KERNEL(Element, Op, Simple, simple) \
  GYRE_KERNEL(Element, Op, Ll, ll)         \
  GYRE_KERNEL(Element, Op, Ll128, ll128)
#else
template <typename Protocol, typename Element, typename Op>
void run_plan_kernel(const DeviceLaunch launch) {
  run_plan<Protocol, Reducer<Element, Op>>(launch);
}
#define GYRE_KERNELS(Element, Op)                                                    \
  extern const KernelRow kernels_##Element##_##Op;                                   \
  const KernelRow kernels_##Element##_##Op = {{run_plan_kernel<Simple, Element, Op>, \
                                               run_plan_kernel<Ll, Element, Op>,     \
                                               run_plan_kernel<Ll128, Element, Op>}};
#endif

}  // namespace gyre::cuda
