// PreMulSumOps: the ops that gyreRedOpCreatePreMulSum made on one communicator, by number. Numbers
// count up; after the last one, free numbers are used again. A job that makes 10,000 ops a second
// reaches the last number after 2.5 days.
#pragma once

#include "lib/base/element.h"
#include "lib/base/status.h"

#include <climits>
#include <cstdint>
#include <map>

namespace gyre::comm {

class PreMulSumOps {
 public:
  static constexpr int first = 8;  // gyre.h's gyreNumOps
  static constexpr std::size_t most = 1 << 20;

  explicit PreMulSumOps(int next = first) : next_(next) {}

  // Its number.
  Result<int> make(ElementType type, std::uint64_t scalar);
  // Its scalar, if it was made for this type.
  Result<std::uint64_t> find(int op, ElementType type) const;
  Status destroy(int op);

 private:
  struct PreMulSumOp {
    ElementType type;
    std::uint64_t scalar;
  };
  std::map<int, PreMulSumOp> made_;
  int next_;
};

}  // namespace gyre::comm
