// The ring of two ranks as kernels, under the names that an executor looks up: interpreted, or
// hand-written where GYRE_STRAIGHT is defined. They fill one row of the table. Only `simple` is
// timed; the other two names exist because a device needs all three, and nothing may launch them.
#include "bench/gpu/straight_ring.h"

using FloatSum = gyre::cuda::Reducer<gyre::cuda::Float32, gyre::cuda::Sum>;

#if defined(GYRE_STRAIGHT)
#define GYRE_RING(launch) gyre::bench::straight_ring<FloatSum>(launch)
#else
#define GYRE_RING(launch) gyre::cuda::run_plan<gyre::cuda::Simple, FloatSum>(launch)
#endif

extern "C" __global__ void __launch_bounds__(gyre::cuda::max_threads, 1)
    gyre_Float32_Sum_simple(const __grid_constant__ gyre::cuda::DeviceLaunch launch) {
  GYRE_RING(launch);
}
extern "C" __global__ void gyre_Float32_Sum_ll(gyre::cuda::DeviceLaunch) { __trap(); }
extern "C" __global__ void gyre_Float32_Sum_ll128(gyre::cuda::DeviceLaunch) { __trap(); }
