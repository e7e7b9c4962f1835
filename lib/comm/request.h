// Request: one checked call of the API, as a value, before anything is chosen or bound.
#pragma once

#include "lib/base/element.h"
#include "lib/plan/plan.h"

#include <cstdint>

namespace gyre::comm {

struct Request {
  plan::Collective collective = plan::Collective::all_reduce;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint64_t count = 0;  // elements, as the API function counts
  ElementType type = ElementType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t pre_scalar = 0;  // pre_mul_sum: the element, in the low bytes
  int root = 0;
};

}  // namespace gyre::comm
