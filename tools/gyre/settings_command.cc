#include "tools/gyre/settings_command.h"

#include "lib/base/settings.h"
#include "lib/command_line/command_line.h"
#include "lib/command_line/wrap.h"
#include "lib/links/transport_registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

namespace gyre::tools {
namespace {

using namespace command_line;

constexpr std::string_view prefix = "GYRE_";
constexpr std::size_t text_column = 6;

// "debug" means GYRE_DEBUG.
std::string whole_name(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name.starts_with(prefix) ? name : std::string(prefix) + name;
}

void show(const Setting& setting) {
  std::string values = "default " + default_text(setting);
  if (!std::holds_alternative<Setting::Text>(setting.kind))
    values += "; " + accepted_values(setting);
  std::string meaning(setting.meaning);
  if (setting.name == "GYRE_TRANSPORT") meaning += ": " + std::string(comm::transport_choices());
  const std::string indent(text_column, ' ');
  fmt::print("  {}\n{}{}\n{}({})\n", setting.name, indent, wrapped(meaning, text_column), indent,
             wrapped(values, text_column, page_columns - 2));
}

void show_all() {
  for (const SettingGroup& group : settings_groups()) {
    fmt::print("{}{}:\n", &group == &settings_groups()[0] ? "" : "\n", group.title);
    for (const Setting& setting : group.settings) show(setting);
  }
}

int show_one(const std::string& name) {
  std::vector<std::string_view> known;
  for (const Setting& setting : settings_table()) {
    if (setting.name == whole_name(name)) {
      show(setting);
      return 0;
    }
    known.push_back(setting.name);
  }
  const std::string_view near = nearest(whole_name(name), known);
  fmt::print(stderr, "gyre settings: there is no setting \"{}\"; {}\n", name,
             near.empty() ? "gyre settings lists them" : fmt::format("did you mean {}?", near));
  return exit_usage;
}

}  // namespace

int settings_command(int argc, char** argv) {
  std::string name;
  CommandLine line("gyre settings",
                   "Prints every GYRE_ variable, what it means, its default and what it accepts.");
  line.add_option("name", name, any_text(), "NAME",
                  "print this variable alone; GYRE_ may be left out");
  line.add_example("gyre settings GYRE_DEBUG");
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  if (!name.empty()) return show_one(name);
  show_all();
  return 0;
}

}  // namespace gyre::tools
