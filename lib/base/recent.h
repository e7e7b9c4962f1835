// Recent: the last `count` values that were noted. A new one replaces the oldest.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace gyre {

template <typename Value, std::size_t count>
class Recent {
 public:
  void note(const Value& value) { values_[noted_++ % count] = value; }
  bool contains(const Value& value) const {
    const auto end = values_.begin() + static_cast<std::ptrdiff_t>(std::min(noted_, count));
    return std::find(values_.begin(), end, value) != end;
  }

 private:
  std::array<Value, count> values_{};  // a ring
  std::size_t noted_ = 0;
};

}  // namespace gyre
