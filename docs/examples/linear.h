// The building blocks of the parallel examples' layers: arrays of rows, one a sample or token, and
// their products with weights.
#pragma once

#include <cstddef>
#include <vector>

namespace example {

using Matrix = std::vector<float>;  // row by row

inline float& at(Matrix& matrix, int row, int column, int columns) {
  return matrix[static_cast<std::size_t>(row * columns + column)];
}
inline float at(const Matrix& matrix, int row, int column, int columns) {
  return matrix[static_cast<std::size_t>(row * columns + column)];
}
inline int rows_of(const Matrix& matrix, int columns) {
  return static_cast<int>(matrix.size()) / columns;
}

// Of each row of x: W x, W being `outs` rows of `ins`.
inline Matrix product(const Matrix& x, const Matrix& w, int ins, int outs) {
  const int rows = rows_of(x, ins);
  Matrix y(static_cast<std::size_t>(rows * outs), 0.0F);
  for (int row = 0; row < rows; ++row)
    for (int out = 0; out < outs; ++out)
      for (int in = 0; in < ins; ++in)
        at(y, row, out, outs) += at(w, out, in, ins) * at(x, row, in, ins);
  return y;
}

// Of each row of y: the transpose of W, times y.
inline Matrix product_transposed(const Matrix& y, const Matrix& w, int outs, int ins) {
  const int rows = rows_of(y, outs);
  Matrix x(static_cast<std::size_t>(rows * ins), 0.0F);
  for (int row = 0; row < rows; ++row)
    for (int out = 0; out < outs; ++out)
      for (int in = 0; in < ins; ++in)
        at(x, row, in, ins) += at(w, out, in, ins) * at(y, row, out, outs);
  return x;
}

// W += the sum over rows of y times the transpose of x: how W's gradient grows.
inline void add_outer(Matrix& w, const Matrix& y, const Matrix& x, int outs, int ins) {
  const int rows = rows_of(y, outs);
  for (int row = 0; row < rows; ++row)
    for (int out = 0; out < outs; ++out)
      for (int in = 0; in < ins; ++in)
        at(w, out, in, ins) += at(y, row, out, outs) * at(x, row, in, ins);
}

}  // namespace example
