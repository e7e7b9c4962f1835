#include "lib/command_line/command_line.h"

#include "lib/base/settings.h"
#include "lib/command_line/parse.h"
#include "lib/command_line/wrap.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace gyre::command_line {
namespace {

constexpr std::string_view options_heading = "Options";
constexpr std::size_t max_name_columns = 30;  // longer names have a line of their own

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

// "-n, --np N"; names without a letter begin under the others' long names.
std::string left_column(const Option& option) {
  if (option.names.empty()) return "  " + option.value;
  std::string left = option.names.front().starts_with("--") ? "      " : "  ";
  for (const std::string& name : option.names)
    left += (&name == &option.names[0] ? "" : ", ") + name;
  if (option.value.empty()) return left;
  return left +
         (option.value_is_optional ? fmt::format(" [{}]", option.value) : " " + option.value);
}

std::string row(const std::string& left, const std::string& meaning, std::size_t column) {
  const bool fits = left.size() + 2 <= column;
  const std::string gap =
      fits ? std::string(column - left.size(), ' ') : '\n' + std::string(column, ' ');
  return left + gap + wrapped(meaning, column) + '\n';
}

// What is wrong with it, if anything.
std::string store(const Given& given) {
  Option& option = *given.option;
  const bool has_value = given.value.has_value(), is_flag = option.value.empty();
  if (is_flag && has_value) return fmt::format("{} takes no value", given.typed);
  if (!is_flag && !has_value && !option.value_is_optional)
    return fmt::format("{} needs a value ({})", given.typed, option.value);
  if (option.count++ == 0) option.begin();
  if (is_flag) option.store("");
  if (!has_value) return "";
  for (const std::string& value : option.splits ? split(*given.value) : std::vector{*given.value}) {
    if (const std::string wrong = option.form(value); !wrong.empty())
      return fmt::format("{}: {}", given.typed, wrong);
    option.store(value);
  }
  return "";
}

}  // namespace

// ------------------------------------------------------------------------------- declaring

CommandLine::CommandLine(std::string name, std::string description)
    : name_(std::move(name)), description_(std::move(description)) {}

Option& CommandLine::declare(std::string_view names, std::string value, std::string meaning) {
  Option& option = options_.emplace_back();
  for (std::string& name : split(names))
    if (name.starts_with('-'))
      option.names.push_back(std::move(name));
    else
      option.place = std::move(name);
  option.value = std::move(value);
  option.meaning = std::move(meaning);
  return option;
}

Option& CommandLine::add_flag(std::string_view names, bool& target, std::string meaning) {
  Option& option = declare(names, "", std::move(meaning));
  option.begin = [] {};
  option.store = [&target](const std::string&) { target = true; };
  return option;
}

void CommandLine::add_rest(std::vector<std::string>& target, std::string value) {
  rest_ = &target;
  rest_value_ = std::move(value);
}

void CommandLine::add_example(std::string example) { examples_.push_back(std::move(example)); }

// ------------------------------------------------------------------------------- reading

std::vector<std::string_view> CommandLine::long_names() const {
  std::vector<std::string_view> names = {"--help"};
  for (const Option& option : options_)
    for (const std::string_view name : option.names)
      if (name.starts_with("--")) names.push_back(name);
  return names;
}

// Long names that were cut short, in full.
std::vector<std::string> CommandLine::completed(std::vector<std::string> words) const {
  for (std::string& word : words) {
    if (word == "--") break;
    const std::string begin = word.substr(0, word.find('='));
    if (!begin.starts_with("--")) continue;
    std::vector<std::string_view> begun = long_names();
    std::erase_if(begun, [&begin](std::string_view name) { return !name.starts_with(begin); });
    if (begun.size() == 1) word.replace(0, begin.size(), begun[0]);
  }
  return words;
}

std::string CommandLine::refusal(const std::string& word) const {
  const std::string name = word.substr(0, word.find('='));
  const std::string_view near = name.starts_with("--") ? nearest(name, long_names()) : "";
  return fmt::format("there is no option {}{}", name,
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

std::string CommandLine::missing() const {
  for (const Option& option : options_)
    if (option.is_required && option.count == 0)
      return fmt::format("give {}{}, {}",
                         option.names.empty() ? std::string() : option.names.front() + " ",
                         option.value, option.meaning);
  return "";
}

std::optional<EarlyEnd> CommandLine::read(const std::vector<std::string>& words) {
  SortedWords sorted =
      sort_words(options_, rest_ != nullptr, takes_beginnings_ ? completed(words) : words);
  if (sorted.wants_help) return EarlyEnd{true, help()};
  std::string error;
  if (!sorted.unknown.empty())
    error = refusal(sorted.unknown.front());
  else if (rest_ != nullptr)
    *rest_ = std::move(sorted.rest);
  else if (!sorted.rest.empty())
    error = fmt::format("\"{}\" is one word too many", sorted.rest.front());
  for (const Given& given : sorted.given)
    if (error.empty()) error = store(given);
  if (error.empty()) error = missing();
  if (error.empty()) return std::nullopt;
  return EarlyEnd{false,
                  error.ends_with('?') ? error : fmt::format("{}; see {} --help", error, name_)};
}

std::optional<int> CommandLine::read(int argc, const char* const* argv) {
  const std::optional<EarlyEnd> end = read(std::vector<std::string>(argv + 1, argv + argc));
  if (!end) return std::nullopt;
  if (end->is_help) {
    fmt::print("{}", end->text);
    return 0;
  }
  fmt::print(stderr, "{}: {}\n", name_, end->text);
  return exit_usage;
}

// ------------------------------------------------------------------------------- telling

std::string CommandLine::help() const {
  std::string page = "Usage: " + name_ + " [OPTIONS]";
  std::vector<std::string_view> headings = {options_heading};
  const std::string help_names = "  -h, --help";
  std::size_t column = help_names.size() + 2;
  for (const Option& option : options_) {
    if (!option.place.empty())
      page += " " + (option.is_required ? option.value : "[" + option.value + "]");
    if (!option.heading.empty() && std::ranges::count(headings, option.heading) == 0)
      headings.push_back(option.heading);
    if (const std::size_t columns = left_column(option).size() + 2; columns <= max_name_columns)
      column = std::max(column, columns);
  }
  if (rest_ != nullptr) page += " " + rest_value_;
  page += "\n\n" + wrapped(description_) + "\n";
  for (const std::string_view heading : headings) {
    page += fmt::format("\n{}:\n", heading);
    for (const Option& option : options_) {
      if ((option.heading.empty() ? options_heading : option.heading) != heading) continue;
      page += row(left_column(option),
                  option.default_text.empty()
                      ? option.meaning
                      : fmt::format("{} (default {})", option.meaning, option.default_text),
                  column);
    }
    if (heading == options_heading)
      page += row(help_names, "print this and do nothing else", column);
  }
  for (const std::string& example : examples_)
    page += (&example == &examples_[0] ? "\nExamples:\n  " : "  ") + example + "\n";
  if (!footer_.empty()) page += "\n" + wrapped(footer_) + "\n";
  return page;
}

}  // namespace gyre::command_line
