#include "lib/command_line/command_line.h"

#include "lib/base/settings.h"
#include "lib/command_line/wrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace gyre::command_line {
namespace {

constexpr std::string_view options_heading = "Options";
constexpr std::size_t max_name_columns = 30;  // longer names have a line of their own

// A negative number is a value.
bool is_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word[1] != '.' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_help(std::string_view name) { return name == "-h" || name == "--help"; }

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

// Sorts words into options and their values. It goes on after an error, since --help may follow.
class CommandLine::WordSorter {
 public:
  WordSorter(CommandLine& line, const std::vector<std::string>& words)
      : line_(line), words_(words) {}

  void read() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (ended_ || !is_option(word))
        take_place(word);
      else if (word == "--")
        ended_ = true;
      else if (word.starts_with("--"))
        take_long(word);
      else
        take_short(word);
    }
  }

  const std::string& error() const { return error_; }
  const std::vector<Given>& given() const { return given_; }
  bool wants_help() const { return wants_help_; }

 private:
  void refuse(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

  void refuse_option(const std::string& name) {
    std::vector<std::string_view> known = {"--help"};
    for (const Option& option : line_.options_)
      for (const std::string& one : option.names)
        if (one.starts_with("--")) known.push_back(one);
    const std::string_view near = name.starts_with("--") ? nearest(name, known) : "";
    refuse(fmt::format("there is no option {}{}", name,
                       near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }

  Option* find(const std::string& name) const {
    std::vector<Option*> begun;
    for (Option& option : line_.options_)
      for (const std::string& known : option.names) {
        if (known == name) return &option;
        if (line_.takes_beginnings_ && name.size() > 2 && known.starts_with(name))
          begun.push_back(&option);
      }
    return begun.size() == 1 ? begun[0] : nullptr;
  }

  void take_place(const std::string& word) {
    if (line_.rest_ != nullptr) {
      line_.rest_->assign(words_.begin() + static_cast<std::ptrdiff_t>(next_) - 1, words_.end());
      next_ = words_.size();
      return;
    }
    std::size_t place = 0;
    for (Option& option : line_.options_)
      if (!option.place.empty() && place++ == places_) {
        ++places_;
        return given_.push_back({&option, option.place, {word}});
      }
    refuse(fmt::format("\"{}\" is one word too many", word));
  }

  void take_long(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (is_help(name)) return void(wants_help_ = true);
    Option* const option = find(name);
    if (option == nullptr) return refuse_option(name);
    if (equals == word.npos) return take_values(*option, name);
    if (option->value.empty()) return refuse(fmt::format("{} takes no value", name));
    given_.push_back({option, name, {word.substr(equals + 1)}});
  }

  void take_short(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const std::string name = {'-', word[i]};
      if (is_help(name)) return void(wants_help_ = true);
      Option* const option = find(name);
      if (option == nullptr) return refuse_option(i == 1 ? word : name);
      const std::size_t value = i + 1 + (word.substr(i + 1).starts_with('=') ? 1 : 0);
      if (!option->value.empty() && value < word.size())
        return given_.push_back({option, name, {word.substr(value)}});
      take_values(*option, name);
    }
  }

  void take_values(Option& option, const std::string& typed) {
    Given given{&option, typed, {}};
    const std::size_t most = option.value.empty() ? 0 : option.takes_several ? words_.size() : 1;
    while (given.values.size() < most && next_ < words_.size() && !is_option(words_[next_]))
      given.values.push_back(words_[next_++]);
    if (given.values.empty() && most > 0 && !option.value_is_optional)
      return refuse(fmt::format("{} needs a value ({})", typed, option.value));
    given_.push_back(std::move(given));
  }

  CommandLine& line_;
  const std::vector<std::string>& words_;
  std::size_t next_ = 0;
  std::size_t places_ = 0;  // taken
  bool ended_ = false;      // by "--"
  bool wants_help_ = false;
  std::string error_;  // the first
  std::vector<Given> given_;
};

std::string CommandLine::store(const Given& given) {
  Option& option = *given.option;
  if (option.count++ == 0) option.begin();
  if (option.value.empty()) option.store("");
  for (const std::string& word : given.values)
    for (const std::string& value : option.splits ? split(word) : std::vector{word}) {
      if (const std::string wrong = option.form(value); !wrong.empty())
        return fmt::format("{}: {}", given.typed, wrong);
      option.store(value);
    }
  return "";
}

std::string CommandLine::missing() const {
  for (const Option& option : options_)
    if (option.is_required && option.count == 0)
      return fmt::format("give {} {}, {}", option.names.front(), option.value, option.meaning);
  return "";
}

std::optional<EarlyEnd> CommandLine::read(const std::vector<std::string>& words) {
  WordSorter sorter(*this, words);
  sorter.read();
  if (sorter.wants_help()) return EarlyEnd{true, help()};
  std::string error = sorter.error();
  for (const Given& given : sorter.given())
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
    if (!option.place.empty()) page += " [" + option.value + "]";
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
