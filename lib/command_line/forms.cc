#include "lib/command_line/forms.h"

#include "lib/base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace gyre::command_line {
namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

std::optional<double> parsed_number(const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (text.empty() || error != std::errc() || end != last || value != value) return std::nullopt;
  return value;
}

// An empty text is seen, too.
std::string shown(const std::string& text) { return text.empty() ? "\"\"" : text; }

template <typename Value>
std::string outside(const std::string& text, Value least, Value most) {
  if (most >= static_cast<Value>(highest)) return fmt::format("{} is below {}", text, least);
  return fmt::format("{} is not from {} to {}", text, least, most);
}

}  // namespace

Form any_text() {
  return [](const std::string&) { return std::string(); };
}

Form whole(std::int64_t least, std::int64_t most) {
  return [least, most](const std::string& text) -> std::string {
    if (parse_integer(text, least, most).ok()) return "";
    if (!parsed_number(text)) return fmt::format("{} is not a number", shown(text));
    if (text.find_first_not_of("+-0123456789") != text.npos)
      return fmt::format("{} is not a whole number", text);
    return outside(text, least, most);
  };
}

Form number(double least, double most) {
  return [least, most](const std::string& text) -> std::string {
    const std::optional<double> value = parsed_number(text);
    if (!value) return fmt::format("{} is not a number", shown(text));
    return *value >= least && *value <= most ? "" : outside(text, least, most);
  };
}

Form one_of(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) -> std::string {
    const std::vector<std::string_view> views(words.begin(), words.end());
    for (const std::string_view word : views)
      if (word == text) return "";
    const std::string_view near = nearest(text, views);
    if (!near.empty()) return fmt::format("{} is not known; did you mean {}?", text, near);
    return fmt::format("{} is not one of {}", shown(text), fmt::join(words, ", "));
  };
}

Form size() {
  return [](const std::string& text) -> std::string {
    if (parse_size(text, 0, highest).ok()) return "";
    return fmt::format("{} is not a size, as 512, 64K or 1.5G are", shown(text));
  };
}

std::int64_t read_whole(const std::string& text) {
  const Result<std::int64_t> plain = parse_integer(text, lowest, highest);
  if (plain.ok()) return *plain;
  const Result<std::int64_t> bytes = parse_size(text, 0, highest);
  return bytes.ok() ? *bytes : 0;
}

double read_number(const std::string& text) { return parsed_number(text).value_or(0); }

}  // namespace gyre::command_line
