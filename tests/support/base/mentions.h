// Whether an error's text says something.
#pragma once

#include <string_view>

namespace gyre::tests {

inline bool mentions(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace gyre::tests
