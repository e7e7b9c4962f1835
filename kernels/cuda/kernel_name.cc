#include "kernels/cuda/kernel_name.h"

namespace gyre::cuda {
namespace {

std::string_view type_class(ElementType type) {
  constexpr std::string_view names[element_type_count] = {
      "Bits8",   "Bits8",   "Bits32",  "Bits32",   "Bits64",     "Bits64",
      "Float16", "Float32", "Float64", "BFloat16", "Float8E4M3", "Float8E5M2"};
  return names[static_cast<int>(type)];
}

std::string_view op_class(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return "Product";
    case ReduceOp::min:
    case ReduceOp::max:
      return "Extreme";
    default:
      return "Sum";
  }
}

}  // namespace

std::string kernel_row(ElementType type, ReduceOp op) {
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (bitwise) return is_float(type) ? "" : "Bits64_Bitwise";
  return std::string(type_class(type)) + "_" + std::string(op_class(op));
}

std::string kernel_name(DeviceProtocol protocol, std::string_view row) {
  constexpr std::string_view names[device_protocol_count] = {"simple", "ll", "ll128"};
  return "gyre_" + std::string(row) + "_" + std::string(names[static_cast<int>(protocol)]);
}

}  // namespace gyre::cuda
