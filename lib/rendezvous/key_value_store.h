// Store: a key-value store that the ranks of a job share: a caller's, or their launcher's.
#pragma once

#include "lib/base/status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gyre::rendezvous {

struct Store {
  std::function<Status(const std::string& key, const std::vector<std::uint8_t>& value)> set;
  // Waits until it is set.
  std::function<Result<std::vector<std::uint8_t>>(const std::string& key, std::int64_t timeout_ms)>
      get;
};

}  // namespace gyre::rendezvous
