#define CATCH_CONFIG_RUNNER
#include "tests/support/session.h"

#include "tests/support/catch.h"

#include <cstdio>
#include <string>

namespace gyre::tests {
namespace {

// Only the cases of one file run: those that the command line names, or all that are not hidden. A
// file that has none of them is an error.
void choose_file(const std::string& file, Catch::ConfigData& config) {
  const std::string asked = config.testsOrTags.empty() ? "~[.]" : config.testsOrTags[0];
  config.filenamesAsTags = true;
  config.testsOrTags = {"[#" + file + "]" + asked};
#ifdef GYRE_CATCH_2
  config.warnings = Catch::WarnAbout::What(config.warnings | Catch::WarnAbout::NoTests);
#endif
}

}  // namespace

int run_cases(int count, char** arguments, const std::vector<OwnOption>& own,
              const std::function<std::optional<int>()>& before) {
  Catch::Session session;
  std::string file;
  auto line = session.cli() | command_line::Opt(file, "name")["--of"]("only the cases of NAME.cc");
  for (const OwnOption& one : own)
    line |= one.flag != nullptr ? command_line::Opt(*one.flag)[one.name](one.what)
                                : command_line::Opt(*one.number, "number")[one.name](one.what);
  session.cli(line);
  const int code = session.applyCommandLine(count, arguments);
  if (code != 0) return code;
  if (!file.empty() && session.configData().testsOrTags.size() > 1) {
    std::fputs("--of NAME takes one more word: a test case's name, or tags\n", stderr);
    return 2;
  }
  if (!file.empty()) choose_file(file, session.configData());
  if (before && !session.configData().showHelp && !session.configData().listTests)
    if (const auto refused = before()) return *refused;
  return session.run();
}

}  // namespace gyre::tests
