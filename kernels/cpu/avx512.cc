// The moves on AVX-512. Compiled for processors that have it and called on no other.
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/lanes_avx512_narrow.h"
#include "kernels/cpu/move_entry.h"

namespace gyre::kernels {
namespace {

struct Avx512Set {
  using ByteLanes = Bytes512;
  template <typename T>
  using IntegerLanes = Integer512<T>;
  using Float16 = Float16Lanes512;
  using Float32 = Float32Lanes512;
  using Float64 = Float64Lanes512;
  using BFloat16 = BFloat16Lanes512;
  using Float8E4M3 = Float8Lanes512<kernels::Float8E4M3>;
  using Float8E5M2 = Float8Lanes512<kernels::Float8E5M2>;
};

}  // namespace

constinit const MoveTable avx512_table = make_table<Avx512Set>();

}  // namespace gyre::kernels
