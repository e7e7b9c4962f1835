#include "lib/call/pre_mul_sum_ops.h"

#include <fmt/core.h>

namespace gyre::comm {
namespace {

Status not_made(int op) {
  return invalid_argument(fmt::format("op {} was not made on this communicator", op));
}

}  // namespace

Result<int> PreMulSumOps::make(ElementType type, std::uint64_t scalar) {
  if (made_.size() == most)
    return Status(Code::SystemError, "there are 2^20 ops of this communicator already");
  int number = next_;
  while (made_.contains(number)) number = number == INT_MAX ? first : number + 1;
  next_ = number == INT_MAX ? first : number + 1;
  made_[number] = {type, scalar};
  return number;
}

Result<std::uint64_t> PreMulSumOps::find(int op, ElementType type) const {
  const auto found = made_.find(op);
  if (found == made_.end()) return not_made(op);
  if (found->second.type == type) return found->second.scalar;
  return invalid_argument(fmt::format("op {} was made for {} and is used with {}", op,
                                      element_name(found->second.type), element_name(type)));
}

Status PreMulSumOps::destroy(int op) { return made_.erase(op) == 0 ? not_made(op) : Status(); }

}  // namespace gyre::comm
