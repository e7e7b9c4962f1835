#include "kernels/cuda/table.h"

namespace gyre::cuda {

#define GYRE_ROW(Element, Op) extern const KernelRow kernels_##Element##_##Op;
#define GYRE_ROWS(Element)   \
  GYRE_ROW(Element, Sum)     \
  GYRE_ROW(Element, Product) \
  GYRE_ROW(Element, Extreme)
GYRE_ROWS(Bits8)
GYRE_ROWS(Bits32)
GYRE_ROWS(Bits64)
GYRE_ROWS(Float16)
GYRE_ROWS(BFloat16)
GYRE_ROWS(Float32)
GYRE_ROWS(Float64)
GYRE_ROWS(Float8E4M3)
GYRE_ROWS(Float8E5M2)
GYRE_ROW(Bits64, Bitwise)
#undef GYRE_ROWS
#undef GYRE_ROW

namespace {

struct TypeRows {
  const KernelRow* sum;
  const KernelRow* product;
  const KernelRow* extreme;
};

TypeRows rows_of(ElementType type) {
  switch (type) {
#define GYRE_TYPE_ROWS(Element) \
  { &kernels_##Element##_Sum, &kernels_##Element##_Product, &kernels_##Element##_Extreme }
    case ElementType::int8:
    case ElementType::uint8:
      return GYRE_TYPE_ROWS(Bits8);
    case ElementType::int32:
    case ElementType::uint32:
      return GYRE_TYPE_ROWS(Bits32);
    case ElementType::int64:
    case ElementType::uint64:
      return GYRE_TYPE_ROWS(Bits64);
    case ElementType::float16:
      return GYRE_TYPE_ROWS(Float16);
    case ElementType::bfloat16:
      return GYRE_TYPE_ROWS(BFloat16);
    case ElementType::float32:
      return GYRE_TYPE_ROWS(Float32);
    case ElementType::float64:
      return GYRE_TYPE_ROWS(Float64);
    case ElementType::float8_e4m3:
      return GYRE_TYPE_ROWS(Float8E4M3);
    case ElementType::float8_e5m2:
      return GYRE_TYPE_ROWS(Float8E5M2);
#undef GYRE_TYPE_ROWS
  }
  return {};
}

const KernelRow* row_of(ElementType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return rows_of(type).product;
    case ReduceOp::min:
    case ReduceOp::max:
      return rows_of(type).extreme;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return is_float(type) ? nullptr : &kernels_Bits64_Bitwise;
    default:
      return rows_of(type).sum;
  }
}

}  // namespace

Kernel find_kernel(DeviceProtocol protocol, ElementType type, ReduceOp op) {
  const KernelRow* row = row_of(type, op);
  return row != nullptr ? row->by_protocol[static_cast<int>(protocol)] : nullptr;
}

}  // namespace gyre::cuda
