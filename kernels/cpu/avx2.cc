// The moves on AVX2. Compiled for processors that have it and called on no other.
#include "kernels/cpu/lanes_avx2.h"
#include "kernels/cpu/lanes_avx2_narrow.h"
#include "kernels/cpu/move_entry.h"

namespace gyre::kernels {
namespace {

struct Avx2Set {
  using ByteLanes = Bytes256;
  template <typename T>
  using IntegerLanes = Integer256<T>;
  using Float16 = Float16Lanes256;
  using Float32 = Float32Lanes256;
  using Float64 = Float64Lanes256;
  using BFloat16 = BFloat16Lanes256;
  using Float8E4M3 = Float8Lanes256<kernels::Float8E4M3>;
  using Float8E5M2 = Float8Lanes256<kernels::Float8E5M2>;
};

}  // namespace

constinit const MoveTable avx2_table = make_table<Avx2Set>();

}  // namespace gyre::kernels
