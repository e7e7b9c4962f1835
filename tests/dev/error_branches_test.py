"""tools/error_branches.py: what it takes for an error branch, and which of them it says were
reached, of a program that clang compiles here. error_branches_test.py ROOT [unittest arguments]."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import error_branches
import llvm_coverage

CLANG = f"clang++-{llvm_coverage.RELEASE}"
TOOLS = (CLANG, *(f"{name}-{llvm_coverage.RELEASE}" for name in ("llvm-profdata", "llvm-cov")))

MACROS = """
#define GYRE_TRY(expression)             \\
  do {                                   \\
    Status tried = (expression);         \\
    if (!tried.ok()) return tried;       \\
  } while (false)
"""
PROGRAM = """#include "macros.h"
enum class Code { Good, Bad };
struct Status {
  explicit Status(Code given = Code::Good) : code(given) {}
  bool ok() const { return code == Code::Good; }
  Code code;
};
Status of(bool good) { return good ? Status() : Status(Code::Bad); }
Status seldom(int number) {
  if (number > 5) return Status(Code::Bad);  // line 10: never
  if (number == 3)
    return Status(Code::Bad);
  // return Status(Code::Bad); is no code
  GYRE_TRY(of(number > 0));
  GYRE_TRY(of(number < 5));  // line 15: always good
  auto later = [&] { return Status(Code::Bad); };  // line 16: called where number is 9
  if (number == 9) return later();
  return of(true);
}
template <typename Number>
Status twice(Number number) {
  if (number > 7) return Status(Code::Bad);  // line 22: by one of its kinds
  return Status();
}
int main() {
  for (int number = 0; number < 5; ++number) (void)seldom(number);
  (void)twice(1);
  (void)twice(8.0);
}
"""


@unittest.skipIf([name for name in TOOLS if shutil.which(name) is None],
                 "no " + ", ".join(TOOLS))
class Reached(unittest.TestCase):
    def test_the_lines_that_were_not_reached_are_named(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        source, program = (os.path.join(folder, name) for name in ("program.cc", "program"))
        for name, text in (("macros.h", MACROS), ("program.cc", PROGRAM)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        subprocess.run([CLANG, "-std=c++20", "-fprofile-instr-generate", "-fcoverage-mapping",
                        source, "-o", program], check=True, timeout=100)
        os.mkdir(os.path.join(folder, "profiles"))
        subprocess.run([program], check=True, timeout=20, env={
            **os.environ, "LLVM_PROFILE_FILE": os.path.join(folder, "profiles", "one.profraw")})
        functions = llvm_coverage.functions([program], llvm_coverage.merge_profiles(folder))
        lines = []
        missed = error_branches.report(error_branches.Counts(functions), [source], lines.append)
        self.assertEqual(missed, 2, "\n".join(lines))
        self.assertIn("3 of 5", lines[1])
        self.assertIn("1 of 2", lines[1])
        self.assertTrue(lines[1].endswith("   10 16 (15)"), lines[1])
        self.assertIn("made: 3 of 5, 60.0 %", lines)
        self.assertIn("passed on: 1 of 2, 50.0 %", lines)


class Subjects(unittest.TestCase):
    def test_every_subject_has_sources_and_tests(self):
        for name, subject in error_branches.SUBJECTS.items():
            with self.subTest(name):
                self.assertTrue(error_branches.files_of(subject.sources))
                self.assertTrue(error_branches.names_of_tests(subject))


if __name__ == "__main__":
    unittest.main()
