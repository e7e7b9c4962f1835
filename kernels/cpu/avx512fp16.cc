// The float16 moves that AVX-512 FP16 arithmetic does in one instruction where AVX-512 widens to
// float32 and back. Only those whose bits are the same: the least and greatest of any number of
// sources, and the sum or product of two. There, rounding the float32 result once more changes
// nothing: float32 has 24 digits, at least two more than twice float16's 11 (Figueroa 1995).
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/move_entry.h"

#include <type_traits>

namespace gyre::kernels {
namespace {

struct NativeFloat16Lanes {
  using Machine = Avx512;
  using Register = __m512h;
  using Divisor = std::uint32_t;
  static constexpr bool is_float = true;
  static constexpr bool packs_nan = false;
  static constexpr int parts = 1;
  static constexpr int block_registers = 4;
  static constexpr std::uint32_t element_size = 2;

  static LineRegisters<NativeFloat16Lanes> load(const std::byte* place) {
    return unpack(Avx512::load(place));
  }
  static LineRegisters<NativeFloat16Lanes> unpack(Avx512::Raw raw) {
    return {{_mm512_castsi512_ph(raw.bits)}};
  }
  static Avx512::Raw pack(LineRegisters<NativeFloat16Lanes> line) {
    return {_mm512_castph_si512(line.part[0])};
  }
  static __mmask32 unordered(Register a, Register b) {
    return _mm512_cmp_ph_mask(a, b, _CMP_UNORD_Q);
  }
  static __mmask32 either(__mmask32 a, __mmask32 b) { return _kor_mask32(a, b); }
  static bool any(__mmask32 found) { return found != 0; }
  static Register canonical(Register a) {
    const __m512i nan = _mm512_set1_epi16(static_cast<short>(Float16::canonical_nan));
    return _mm512_castsi512_ph(_mm512_mask_mov_epi16(_mm512_castph_si512(a), unordered(a, a), nan));
  }
  static Register add(Register a, Register b) { return _mm512_add_ph(a, b); }
  static Register multiply(Register a, Register b) { return _mm512_mul_ph(a, b); }
  // See Accumulators512.
  static Register minimum(Register a, Register b) {
    return _mm512_castsi512_ph(_mm512_or_si512(_mm512_castph_si512(_mm512_min_ph(a, b)),
                                               _mm512_castph_si512(_mm512_min_ph(b, a))));
  }
  static Register maximum(Register a, Register b) {
    const __m512i sign = _mm512_set1_epi16(INT16_MIN);
    const __m512i ab = _mm512_castph_si512(_mm512_max_ph(a, b));
    const __m512i ba = _mm512_castph_si512(_mm512_max_ph(b, a));
    return _mm512_castsi512_ph(_mm512_ternarylogic_epi32(sign, ab, ba, 0x8e));
  }
};

template <typename Op, ReduceOp wide_op>
void two_sources(const MoveOperands& move) {
  const bool plain = move.pre_source < 0 && move.divisor == 1;
  if (move.source_count != 2 || (!plain && std::is_same_v<Op, Add>))
    return avx512_table.at(ElementType::float16, wide_op)(move);
  call<NativeFloat16Lanes, reduce<NativeFloat16Lanes, Op, 2, false>>(move, 2 * move.count);
}

constexpr MoveTable make_native_table() {
  MoveTable table;
  const auto type = ElementType::float16;
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::pre_mul_sum})
    table.at(type, op) = two_sources<Add, ReduceOp::sum>;
  table.at(type, ReduceOp::prod) = two_sources<Multiply, ReduceOp::prod>;
  using Lanes = NativeFloat16Lanes;
  table.at(type, ReduceOp::min) = entry<Lanes, Lanes, Bytes512, Minimum, false>;
  table.at(type, ReduceOp::max) = entry<Lanes, Lanes, Bytes512, Maximum, false>;
  return table;
}

}  // namespace

constinit const MoveTable avx512fp16_table = make_native_table();

}  // namespace gyre::kernels
