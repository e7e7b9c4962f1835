// LostKnocks: connections that a listener closed before it had looked at what they show. It may be
// flooded and have pushed them out; so whoever came tries again, a few times and ever later.
#pragma once

#include "lib/base/status.h"

#include <cstdint>
#include <string_view>

namespace gyre::transport {

class LostKnocks {
 public:
  // One more. An error once that has been in vain too often.
  Status note(std::string_view why);
  // Whether it is too early for the next one.
  bool pauses() const;

 private:
  int count_ = 0;
  std::int64_t pause_until_ns_ = 0;
};

}  // namespace gyre::transport
