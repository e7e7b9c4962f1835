// The library's version as people and tools read it.
#pragma once

#include <gyre/gyre.h>

#include <fmt/core.h>

#include <string>

namespace gyre::comm {

inline std::string version_text() {
  return fmt::format("{}.{}.{}", GYRE_MAJOR, GYRE_MINOR, GYRE_PATCH);
}

}  // namespace gyre::comm
