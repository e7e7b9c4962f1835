// Operands are packed into panels in the order in which the inner loop reads them; that loop keeps
// a tile of the result in registers. Its vectors are the extension of GCC and clang, which both
// compile to the processor's instructions, so one source serves all.
#include "bench/training/train/multiplier.h"

#include <algorithm>

namespace gyre::training {
namespace {

// Of the inner dimension, so that a panel of the right operand stays in the first cache.
constexpr std::size_t inner_block = 256;
constexpr std::size_t max_rows = 8, max_columns = 32;

// sums[r][c] = sum over k of left[k][r] right[k][c], of `rows` rows and two vectors of columns.
template <int rows, int vector_bytes>
[[gnu::always_inline]] inline void sum_tile(const float* left, const float* right,
                                            std::size_t inner, float* sums) {
  typedef float Vector __attribute__((vector_size(vector_bytes)));
  typedef float Unaligned __attribute__((vector_size(vector_bytes), aligned(4), may_alias));
  constexpr std::size_t lanes = vector_bytes / sizeof(float);
  Vector tile[rows][2] = {};
  for (std::size_t k = 0; k < inner; ++k) {
    const Vector first = *reinterpret_cast<const Unaligned*>(right + k * 2 * lanes);
    const Vector second = *reinterpret_cast<const Unaligned*>(right + k * 2 * lanes + lanes);
    for (int row = 0; row < rows; ++row) {
      tile[row][0] += left[k * rows + static_cast<std::size_t>(row)] * first;
      tile[row][1] += left[k * rows + static_cast<std::size_t>(row)] * second;
    }
  }
  for (int row = 0; row < rows; ++row) {
    float* const place = sums + static_cast<std::size_t>(row) * 2 * lanes;
    *reinterpret_cast<Unaligned*>(place) = tile[row][0];
    *reinterpret_cast<Unaligned*>(place + lanes) = tile[row][1];
  }
}

// How one instruction set does it.
struct Tile {
  std::size_t rows, columns;
  void (*sum)(const float* left, const float* right, std::size_t inner, float* sums);
};

void sum_by_16_bytes(const float* left, const float* right, std::size_t inner, float* sums) {
  sum_tile<4, 16>(left, right, inner, sums);
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void sum_by_32_bytes(const float* left, const float* right,
                                                 std::size_t inner, float* sums) {
  sum_tile<6, 32>(left, right, inner, sums);
}
[[gnu::target("avx512f,avx2,fma")]] void sum_by_64_bytes(const float* left, const float* right,
                                                         std::size_t inner, float* sums) {
  sum_tile<8, 64>(left, right, inner, sums);
}
#endif

Tile best_tile() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {8, 32, sum_by_64_bytes};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {6, 16, sum_by_32_bytes};
#endif
  return {4, 8, sum_by_16_bytes};
}

// `count` of a matrix's rows, from `first` on, and `inner` of its columns, as a panel of `width`
// rows; what is missing of it is zeros.
void pack(const MatrixView& from, std::size_t first, std::size_t count, std::size_t inner_first,
          std::size_t inner, std::size_t width, float* panel) {
  const float* const begin =
      from.values + first * from.row_stride + inner_first * from.column_stride;
  for (std::size_t k = 0; k < inner && count < width; ++k)
    std::fill(panel + k * width + count, panel + (k + 1) * width, 0.0F);
  // In the order in which the matrix lies.
  if (from.row_stride == 1) {
    for (std::size_t k = 0; k < inner; ++k)
      std::copy_n(begin + k * from.column_stride, count, panel + k * width);
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t k = 0; k < inner; ++k)
      panel[k * width + i] = begin[i * from.row_stride + k * from.column_stride];
}

void put(const float* sums, std::size_t sums_stride, float* result, std::size_t result_stride,
         std::size_t rows, std::size_t columns, bool adds) {
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const source = sums + row * sums_stride;
    float* const target = result + row * result_stride;
    if (adds)
      for (std::size_t column = 0; column < columns; ++column) target[column] += source[column];
    else
      std::copy_n(source, columns, target);
  }
}

}  // namespace

void Multiplier::multiply(const MatrixProduct& product) {
  const Tile tile = best_tile();
  const std::size_t panels = (product.rows + tile.rows - 1) / tile.rows;
  left_.resize(std::max(left_.size(), panels * tile.rows * inner_block));
  right_.resize(std::max(right_.size(), tile.columns * inner_block));
  const MatrixView right = product.right.transposed();
  for (std::size_t k = 0; k < product.inner; k += inner_block) {
    const std::size_t inner = std::min(inner_block, product.inner - k);
    const bool adds = product.adds || k > 0;
    for (std::size_t row = 0; row < product.rows; row += tile.rows)
      pack(product.left, row, std::min(tile.rows, product.rows - row), k, inner, tile.rows,
           left_.data() + row * inner_block);
    for (std::size_t column = 0; column < product.columns; column += tile.columns) {
      const std::size_t columns = std::min(tile.columns, product.columns - column);
      pack(right, column, columns, k, inner, tile.columns, right_.data());
      for (std::size_t row = 0; row < product.rows; row += tile.rows) {
        float sums[max_rows * max_columns];
        tile.sum(left_.data() + row * inner_block, right_.data(), inner, sums);
        put(sums, tile.columns, product.result + row * product.result_stride + column,
            product.result_stride, std::min(tile.rows, product.rows - row), columns, adds);
      }
    }
  }
}

}  // namespace gyre::training
