// Gyre's results as statuses, and the tests' variables: see gyre_calls.h.
#include "bench/runner/gyre_calls.h"

#include <fmt/core.h>

#include <cstdlib>

namespace gyre::bench {

Status checked(gyreResult_t result, std::string_view call) {
  if (result == gyreSuccess) return {};
  const std::string cause = gyreGetLastError(nullptr);
  const auto code = static_cast<Code>(result);
  if (cause.empty()) return Status(code, fmt::format("{}: {}", call, gyreGetErrorString(result)));
  const bool named = cause.find(call) != cause.npos;
  return Status(code, named ? cause : fmt::format("{}: {}", call, cause));
}

const char* tests_variable(const std::string& name) {
  const char* own = std::getenv(("GYRE_TESTS_" + name).c_str());
  return own != nullptr ? own : std::getenv(("NCCL_TESTS_" + name).c_str());
}

}  // namespace gyre::bench
