// A program's run of its test cases, with options of its own beside Catch2's. Compiled once for
// all: Catch2 2 is mostly what such a file holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gyre::tests {

// A number or a flag: one of the two places is set.
struct OwnOption {
  std::string name, what;
  std::uint64_t* number = nullptr;
  bool* flag = nullptr;
};

// The exit code. `before` is asked before any case runs, not where the command line only asks for
// help or a list; if it gives a code, none runs.
int run_cases(int count, char** arguments, const std::vector<OwnOption>& own = {},
              const std::function<std::optional<int>()>& before = {});

}  // namespace gyre::tests
