#include "lib/base/errno_text.h"

#include <fmt/core.h>

#include <cstring>

// Null where the C library has none.
extern "C" [[gnu::weak]] const char* strerrorname_np(int) noexcept;
extern "C" [[gnu::weak]] const char* strerrordesc_np(int) noexcept;

namespace gyre {

std::string errno_name(int number) {
  const char* name = strerrorname_np != nullptr ? strerrorname_np(number) : nullptr;
  return name != nullptr ? name : fmt::format("errno {}", number);
}

std::string errno_description(int number) {
  const char* text = strerrordesc_np != nullptr ? strerrordesc_np(number) : nullptr;
  char place[128];
  return text != nullptr ? text : strerror_r(number, place, sizeof place);
}

std::string errno_text(int number) {
  return fmt::format("{} ({})", errno_name(number), errno_description(number));
}

}  // namespace gyre
