#include "lib/plan/collective.h"

#include "lib/base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <string>
#include <vector>

namespace gyre::plan {
namespace {

// Alone, and small.
std::string letters(std::string_view name) {
  std::string found;
  for (const char c : name)
    if (c != '_' && c != '-')
      found += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return found;
}

}  // namespace

Result<Collective> parse_collective(std::string_view name) {
  std::vector<std::string_view> known;
  for (int i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    known.push_back(collective_name(collective));
    if (letters(known.back()) == letters(name)) return collective;
  }
  const std::string_view near = nearest(name, known);
  return invalid_argument(fmt::format("there is no collective \"{}\"{}", name,
                                      near.empty()
                                          ? fmt::format(", only {}", fmt::join(known, ", "))
                                          : fmt::format("; did you mean {}?", near)));
}

}  // namespace gyre::plan
