// Products of matrices of float32 on one thread.
#pragma once

#include <cstddef>
#include <vector>

namespace gyre::training {

// Element (i, j) of a matrix lies at i * row_stride + j * column_stride: so one can be a part of
// another, or its transpose.
struct MatrixView {
  const float* values = nullptr;
  std::size_t row_stride = 0, column_stride = 1;

  static MatrixView rows_of(const float* values, std::size_t width) { return {values, width, 1}; }
  MatrixView transposed() const { return {values, column_stride, row_stride}; }
};

// result = left right, of rows x inner and inner x columns; with `adds` that is added to it.
struct MatrixProduct {
  MatrixView left, right;
  float* result = nullptr;
  std::size_t result_stride = 0;  // of its rows
  std::size_t rows = 0, columns = 0, inner = 0;
  bool adds = false;
};

// Keeps the memory that operands are packed into. Used by one thread.
class Multiplier {
 public:
  void multiply(const MatrixProduct& product);

 private:
  std::vector<float> left_, right_;
};

}  // namespace gyre::training
