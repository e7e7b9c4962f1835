#include "lib/base/subsystem.h"

#include "lib/base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace gyre {
namespace {

constexpr std::array<std::string_view, subsystem_count> names = {
    "INIT", "BOOTSTRAP", "ENV", "GRAPH", "TUNING", "NET", "SHM", "ALLOC", "COLL", "P2P", "CALL"};

Status refuse(std::string_view list, std::string_view word) {
  std::vector<std::string_view> words(names.begin(), names.end());
  words.push_back("ALL");
  const std::string_view near = nearest(word, words);
  return invalid_usage(
      fmt::format("GYRE_DEBUG_SUBSYS=\"{}\": \"{}\" is no subsystem{}; there are {}", list, word,
                  near.empty() ? std::string() : fmt::format(", did you mean {}?", near),
                  fmt::join(words, ", ")));
}

}  // namespace

std::string_view subsystem_name(Subsystem subsystem) {
  return names[static_cast<std::size_t>(subsystem)];
}

Result<SubsystemMask> parse_subsystems(std::string_view list) {
  const bool inverted = list.starts_with('^');
  SubsystemMask mask = 0;
  std::string_view rest = list.substr(inverted ? 1 : 0);
  while (true) {
    const std::size_t comma = rest.find(',');
    std::string word(rest.substr(0, comma));
    std::ranges::transform(word, word.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const auto found = std::ranges::find(names, word);
    if (word == "ALL")
      mask = all_subsystems;
    else if (found != names.end())
      mask |= SubsystemMask{1} << (found - names.begin());
    else
      return refuse(list, word);
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  return inverted ? all_subsystems & ~mask : mask;
}

}  // namespace gyre
