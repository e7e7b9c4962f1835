#include "lib/transport/pinned_pages.h"

#include <charconv>
#include <sys/utsname.h>
#include <utility>

namespace gyre::transport {

bool forks_copy_pinned_pages(std::string_view release) {
  const char* const end = release.data() + release.size();
  unsigned version = 0, level = 0;
  const auto [dot, failed] = std::from_chars(release.data(), end, version);
  if (failed != std::errc() || dot == end || *dot != '.') return false;
  if (std::from_chars(dot + 1, end, level).ec != std::errc()) return false;
  return std::pair(version, level) >= std::pair(5U, 12U);
}

bool forks_copy_pinned_pages() {
  utsname kernel{};
  return uname(&kernel) == 0 && forks_copy_pinned_pages(kernel.release);
}

}  // namespace gyre::transport
