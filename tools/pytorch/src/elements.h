// Elements: the elements of a tensor as Gyre moves or sums them, with Gyre's type and operation.
#pragma once

#include <gyre/gyre.h>

#include <ATen/ATen.h>
#include <cstddef>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace gyre_torch {

// A tensor's elements as bytes where Gyre has no such type: what is moved and not summed may be of
// any type.
struct Elements {
  gyreDataType_t type = gyreUint8;
  std::size_t count = 0;
  std::size_t each = 1;  // Gyre's elements for one of the tensor's
};
Elements to_move(const at::Tensor& tensor);

// The same memory as it is reduced: complex numbers are summed and averaged as pairs of real ones.
// Throws if Gyre cannot do it.
at::Tensor to_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op);

// A reduction: the type it is done in, and the operation; for PREMUL_SUM one made for it, which is
// given back when this goes.
class Reduction {
 public:
  // Throws if Gyre cannot do it, as the constructor does: to know before anything has begun.
  static void check(const c10d::ReduceOp& op, at::ScalarType type);
  Reduction(const c10d::ReduceOp& op, at::ScalarType type, gyreComm_t comm);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  gyreDataType_t type() const { return type_; }
  gyreRedOp_t op() const { return op_; }

 private:
  void make_premul(const c10d::ReduceOp& op, at::ScalarType type);
  gyreComm_t comm_;
  gyreDataType_t type_ = gyreUint8;
  gyreRedOp_t op_ = gyreSum;
  bool made_ = false;
};

}  // namespace gyre_torch
