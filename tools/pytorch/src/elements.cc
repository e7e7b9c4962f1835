#include "tools/pytorch/src/elements.h"

#include "tools/pytorch/src/torch_versions.h"

#include <c10/util/Exception.h>
#include <optional>

namespace gyre_torch {
namespace {

using c10d::ReduceOp;

std::optional<gyreDataType_t> native_type(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return gyreInt8;
    case at::kByte:
      return gyreUint8;
    case at::kInt:
      return gyreInt32;
    case at::kUInt32:
      return gyreUint32;
    case at::kLong:
      return gyreInt64;
    case at::kUInt64:
      return gyreUint64;
    case at::kHalf:
      return gyreFloat16;
    case at::kBFloat16:
      return gyreBfloat16;
    case at::kFloat:
      return gyreFloat32;
    case at::kDouble:
      return gyreFloat64;
    case at::kFloat8_e4m3fn:
      return gyreFloat8e4m3;
    case at::kFloat8_e5m2:
      return gyreFloat8e5m2;
    default:
      return std::nullopt;
  }
}

const char* op_name(ReduceOp::RedOpType op) {
  static const char* const names[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  return op < std::size(names) ? names[op] : "unknown";
}

// bool is a byte of 0 or 1: SUM and MAX mean "or", PRODUCT and MIN "and", as in other backends.
std::optional<gyreRedOp_t> bool_op(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
    case ReduceOp::BOR:
      return gyreMax;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::BAND:
      return gyreMin;
    case ReduceOp::BXOR:
      return gyreBxor;
    default:
      return std::nullopt;
  }
}

std::optional<gyreRedOp_t> number_op(ReduceOp::RedOpType op, bool is_float) {
  switch (op) {
    case ReduceOp::SUM:
      return gyreSum;
    case ReduceOp::AVG:
      return gyreAvg;
    case ReduceOp::PRODUCT:
      return gyreProd;
    case ReduceOp::MIN:
      return gyreMin;
    case ReduceOp::MAX:
      return gyreMax;
    default:
      break;
  }
  if (is_float) return std::nullopt;
  switch (op) {
    case ReduceOp::BAND:
      return gyreBand;
    case ReduceOp::BOR:
      return gyreBor;
    case ReduceOp::BXOR:
      return gyreBxor;
    default:
      return std::nullopt;
  }
}

}  // namespace

Elements to_move(const at::Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (const auto type = native_type(tensor.scalar_type())) return {*type, count, 1};
  const std::size_t each = tensor.element_size();
  return {gyreUint8, count * each, each};
}

namespace {

std::optional<gyreDataType_t> reduced_type(at::ScalarType type) {
  return type == at::kBool ? gyreUint8 : native_type(type);
}
std::optional<gyreRedOp_t> plain_op(ReduceOp::RedOpType op, at::ScalarType type) {
  return type == at::kBool ? bool_op(op) : number_op(op, at::isFloatingType(type));
}
const PreMulSumFactor* factor_of(const ReduceOp& op) {
  return static_cast<const PreMulSumFactor*>(op.supplement_.get());
}

}  // namespace

void Reduction::check(const ReduceOp& op, at::ScalarType type) {
  TORCH_CHECK_TYPE(
      reduced_type(type).has_value(), "gyre cannot reduce tensors of type ", type,
      ": it reduces bool, int8, uint8, int32, uint32, int64, uint64, float16, "
      "bfloat16, float32, float64, the two float8 types of e4m3fn and e5m2, and complex "
      "numbers of these types");
  if (op.op_ == ReduceOp::PREMUL_SUM) {
    TORCH_CHECK_VALUE(
        factor_of(op) != nullptr && at::isFloatingType(type),
        "ReduceOp.PREMUL_SUM takes a factor and tensors of a floating-point type, not ", type);
    return;
  }
  TORCH_CHECK_VALUE(plain_op(op.op_, type).has_value(), "gyre cannot reduce tensors of type ", type,
                    " by ReduceOp.", op_name(op.op_));
}

at::Tensor to_reduce(const at::Tensor& tensor, const ReduceOp& op) {
  TORCH_CHECK_VALUE(!tensor.is_complex() || op.op_ == ReduceOp::SUM || op.op_ == ReduceOp::AVG,
                    "gyre reduces complex tensors by ReduceOp.SUM and ReduceOp.AVG, not by ",
                    op_name(op.op_));
  at::Tensor reduced = tensor.is_complex() ? at::view_as_real(tensor) : tensor;
  Reduction::check(op, reduced.scalar_type());
  return reduced;
}

Reduction::Reduction(const ReduceOp& op, at::ScalarType type, gyreComm_t comm) : comm_(comm) {
  check(op, type);
  type_ = *reduced_type(type);
  if (op.op_ == ReduceOp::PREMUL_SUM)
    make_premul(op, type);
  else
    op_ = *plain_op(op.op_, type);
}

void Reduction::make_premul(const ReduceOp& op, at::ScalarType type) {
  const PreMulSumFactor* factor = factor_of(op);
  at::Tensor scalar = factor->tensor_factor.defined()
                          ? factor->tensor_factor.to(at::kCPU, type)
                          : at::scalar_tensor(factor->double_factor, at::TensorOptions(type));
  const gyreResult_t made =
      gyreRedOpCreatePreMulSum(&op_, scalar.data_ptr(), type_, gyreScalarHostImmediate, comm_);
  TORCH_CHECK(made == gyreSuccess, "gyre: ReduceOp.PREMUL_SUM: ", gyreGetLastError(comm_));
  made_ = true;
}

Reduction::~Reduction() {
  if (made_) (void)gyreRedOpDestroy(op_, comm_);
}

}  // namespace gyre_torch
