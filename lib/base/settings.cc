#include "lib/base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <strings.h>

extern "C" char** environ;

namespace gyre {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

// Stores `value`; false if it is not of the setting's kind.
bool store(Settings& settings, const Setting::Kind& kind, const std::string& value) {
  const auto keep = [&](std::int64_t Settings::*field, Result<std::int64_t> parsed) {
    if (parsed.ok()) settings.*field = *parsed;
    return parsed.ok();
  };
  return std::visit(Overloaded{[&](const Setting::Integer& s) {
                                 return keep(s.field, parse_integer(value, s.least, s.most));
                               },
                               [&](const Setting::Size& s) {
                                 return keep(s.field, parse_size(value, s.least, s.most));
                               },
                               [&](const Setting::Switch& s) {
                                 settings.*s.field = value == "1";
                                 return value == "0" || value == "1";
                               },
                               [&](const Setting::Keyword& s) {
                                 for (std::string_view word : s.words) {
                                   if (strcasecmp(std::string(word).c_str(), value.c_str()) != 0)
                                     continue;
                                   settings.*s.field = word;
                                   return true;
                                 }
                                 return false;
                               },
                               [&](const Setting::Text& s) {
                                 settings.*s.field = value;
                                 return !value.empty();
                               }},
                    kind);
}

// Letters that are added, left out, replaced, or two in the wrong order.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool crossed = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (crossed) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

Result<Settings> parse_settings(const std::map<std::string, std::string>& environment,
                                std::vector<std::string>* warnings) {
  Settings settings;
  std::vector<std::string_view> names;
  for (const Setting& setting : settings_table()) {
    names.push_back(setting.name);
    const auto found = environment.find(std::string(setting.name));
    if (found == environment.end()) continue;
    if (!store(settings, setting.kind, found->second))
      return invalid_usage(fmt::format("{}=\"{}\" is not accepted: give {}; see gyre settings {}",
                                       setting.name, found->second, accepted_values(setting),
                                       setting.name));
    settings.said.emplace(setting.name);
  }
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("GYRE_") || std::ranges::count(names, name) > 0) continue;
    // The benchmarks' own, and PyTorch's backend's, which reads them before this library is loaded.
    if (name.starts_with("GYRE_TESTS_") || name.starts_with("GYRE_TORCH_")) continue;
    const std::string_view known = nearest(name, names);
    if (warnings != nullptr)
      warnings->push_back(
          known.empty()
              ? fmt::format("{} is not a setting of Gyre", name)
              : fmt::format("{} is not a setting of Gyre; did you mean {}?", name, known));
  }
  return settings;
}

std::map<std::string, std::string> given_settings() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("GYRE_") && equals != text.npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<Settings> read_settings(std::vector<std::string>* warnings) {
  return parse_settings(given_settings(), warnings);
}

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < least ||
      value > most)
    return invalid_argument(
        fmt::format("\"{}\" is not a whole number from {} to {}", text, least, most));
  return value;
}

Result<std::int64_t> parse_size(std::string_view text, std::int64_t least, std::int64_t most) {
  const Status wrong = invalid_argument(
      fmt::format("\"{}\" is not a size from {} to {} (K, M, G, T allowed)", text, least, most));
  std::string_view digits = text;
  double unit = 1;
  constexpr std::string_view units = "KMGT";
  if (!digits.empty()) {
    const std::size_t place = units.find(static_cast<char>(std::toupper(digits.back())));
    if (place != units.npos) {
      unit = std::pow(1024.0, static_cast<double>(place + 1));
      digits.remove_suffix(1);
    }
  }
  if (digits.empty() || digits.find_first_not_of("0123456789.") != digits.npos) return wrong;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return wrong;
  const double bytes = value * unit;
  if (!(bytes >= static_cast<double>(least) && bytes <= static_cast<double>(most))) return wrong;
  return static_cast<std::int64_t>(bytes);
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  std::size_t least = word.size() / 3 + 1;
  for (std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) least = distance, best = candidate;
  }
  return best;
}

}  // namespace gyre
