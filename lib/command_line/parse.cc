#include "lib/command_line/parse.h"

// It takes long to compile: no other file of this room, and none that uses it, includes it.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <string_view>

namespace gyre::command_line {
namespace {

// Stands for a value that was not given. No word has such a byte.
constexpr std::string_view no_value("\0", 1);

// CLI11 drops a "--" that follows an option's values. This word, an option that there is not, is
// put before it, and taken out again.
constexpr const char* values_end = "--\x7f";

// To CLI11, each name and each place is an option of its own, so that it tells which was typed.
struct Name {
  Option* option;
  std::string typed;
  std::size_t taken = 0;  // of its values
};
using Names = std::map<const CLI::Option*, Name>;

CLI::Option* add(CLI::App& app, const std::string& name, int least, int most) {
  return app.add_option(name)
      ->expected(least, most)
      ->default_str(std::string(no_value))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

Names add_names(CLI::App& app, std::deque<Option>& options, bool has_places, int most) {
  Names names;
  for (Option& option : options) {
    const int values = option.value.empty() ? 0 : option.takes_several ? most : 1;
    for (const std::string& name : option.names) names[add(app, name, 0, values)] = {&option, name};
    if (has_places && !option.place.empty())
      names[add(app, "place_" + option.place, 1, 1)] = {&option, option.place};
  }
  return names;
}

Given next_given(Name& name, const std::vector<std::string>& values) {
  std::string value = values.at(name.taken++);
  if (value == no_value) return {name.option, name.typed, std::nullopt};
  const bool is_short = name.typed.size() == 2 && name.typed[0] == '-';
  if (is_short && value.starts_with('=')) value.erase(0, 1);  // -n=4
  return {name.option, name.typed, value};
}

}  // namespace

SortedWords sort_words(std::deque<Option>& options, bool has_rest, std::vector<std::string> words) {
  SortedWords sorted;
  CLI::App app;
  app.allow_extras()->allow_windows_style_options(false)->prefix_command(has_rest);
  Names names = add_names(app, options, !has_rest, static_cast<int>(words.size()) + 1);
  const auto mark = std::ranges::find(words, "--");
  if (mark != words.end()) words.insert(mark, values_end);
  std::ranges::reverse(words);
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    sorted.wants_help = true;
    return sorted;
  }
  for (const CLI::Option* const one : app.parse_order())
    sorted.given.push_back(next_given(names.at(one), one->results()));
  std::vector<std::string> others = app.remaining();
  std::erase(others, values_end);
  auto rest = std::ranges::find_if(
      others, [](const std::string& word) { return word == "--" || !word.starts_with('-'); });
  sorted.unknown.assign(others.begin(), rest);
  if (rest != others.end() && *rest == "--") ++rest;
  sorted.rest.assign(rest, others.end());
  return sorted;
}

}  // namespace gyre::command_line
