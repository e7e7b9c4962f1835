// Parses the words of a gyre command. All commands print help and refuse wrong words in the same
// way.
#pragma once

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>

namespace gyre::tools {

inline constexpr int exit_usage = 2;

// The process's exit code, if that is all there is to do. The app's name is what people type.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string name = app.get_name();
    fmt::print(stderr, "{}: {}; see {} --help\n", name, error.what(), name);
    return exit_usage;
  }
  return std::nullopt;
}

}  // namespace gyre::tools
