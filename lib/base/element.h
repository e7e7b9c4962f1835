// Element types and reductions, with the values of gyre.h (which are NCCL's, nccl.h 2.30; the
// bitwise reductions are Gyre's). Nothing here computes: kernels/ does.
#pragma once

#include <cstdint>
#include <string_view>

namespace gyre {

enum class ElementType : std::uint8_t {
  // clang-format off
  int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16,
  float8_e4m3, float8_e5m2,
  // clang-format on
};
inline constexpr int element_type_count = 12;

enum class ReduceOp : std::uint8_t {
  sum,
  prod,
  max,
  min,
  avg,  // sum, then divided by the number of ranks at the last reduction
  band,
  bor,
  bxor,         // integers only
  pre_mul_sum,  // each rank's input times its scalar, then sum
};
inline constexpr int reduce_op_count = 9;

constexpr std::uint32_t element_bytes(ElementType type) {
  constexpr std::uint8_t bytes[element_type_count] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[static_cast<int>(type)];
}

constexpr bool is_float(ElementType type) { return type >= ElementType::float16; }

// Names as nccl-tests prints and reads them.
constexpr std::string_view element_name(ElementType type) {
  constexpr std::string_view names[element_type_count] = {"int8",   "uint8",    "int32",  "uint32",
                                                          "int64",  "uint64",   "half",   "float",
                                                          "double", "bfloat16", "f8e4m3", "f8e5m2"};
  return names[static_cast<int>(type)];
}

constexpr std::string_view op_name(ReduceOp op) {
  constexpr std::string_view names[reduce_op_count] = {"sum",  "prod", "max",  "min",   "avg",
                                                       "band", "bor",  "bxor", "mulsum"};
  return names[static_cast<int>(op)];
}

}  // namespace gyre
