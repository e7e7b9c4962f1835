// Kernels that gpu_moves times: the bare moves, and the ones that they are compared with. Names are
// C's.
#include "bench/gpu/bare_moves.h"

using gyre::bench::BareMove;
using FloatSum = gyre::cuda::Reducer<gyre::cuda::Float32, gyre::cuda::Sum>;

extern "C" __global__ void __launch_bounds__(gyre::cuda::max_threads, 1)
    gyre_bench_copy(const __grid_constant__ BareMove on) {
  gyre::bench::bare_moves<FloatSum, false>(on);
}

extern "C" __global__ void __launch_bounds__(gyre::cuda::max_threads, 1)
    gyre_bench_reduce(const __grid_constant__ BareMove on) {
  gyre::bench::bare_moves<FloatSum, true>(on);
}

// STREAM's triad (J. McCalpin): two streams in, one out. Four independent loads of 16 bytes.
extern "C" __global__ void __launch_bounds__(512)
    gyre_bench_triad(const float4* a, const float4* b, float4* out, unsigned long long count,
                     float factor) {
  constexpr int unroll = 4;
  const unsigned long long threads = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned long long at = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; at < count; at += threads * unroll) {
    float4 x[unroll], y[unroll];
#pragma unroll
    for (int k = 0; k < unroll; ++k) {
      if (at + k * threads >= count) continue;
      x[k] = a[at + k * threads];
      y[k] = b[at + k * threads];
    }
#pragma unroll
    for (int k = 0; k < unroll; ++k) {
      if (at + k * threads >= count) continue;
      out[at + k * threads] = {x[k].x + factor * y[k].x, x[k].y + factor * y[k].y,
                               x[k].z + factor * y[k].z, x[k].w + factor * y[k].w};
    }
  }
}

extern "C" __global__ void gyre_bench_empty() {}
