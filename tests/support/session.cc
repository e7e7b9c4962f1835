#define CATCH_CONFIG_RUNNER
#include "tests/support/session.h"

#include "tests/support/catch.h"

namespace gyre::tests {

int run_cases(int count, char** arguments, const std::vector<OwnOption>& own,
              const std::function<std::optional<int>()>& before) {
  Catch::Session session;
  auto line = session.cli();
  for (const OwnOption& one : own)
    line |= one.flag != nullptr ? command_line::Opt(*one.flag)[one.name](one.what)
                                : command_line::Opt(*one.number, "number")[one.name](one.what);
  session.cli(line);
  const int code = session.applyCommandLine(count, arguments);
  if (code != 0) return code;
  if (before && !session.configData().showHelp && !session.configData().listTests)
    if (const auto refused = before()) return *refused;
  return session.run();
}

}  // namespace gyre::tests
