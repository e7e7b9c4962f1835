"""tools/dev distributions, as far as a machine can tell that makes no root: what it says, where
packages come from, what is copied, and what is read from the logs of Meson and its tests.
distributions_test.py ROOT [unittest arguments]."""
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import distributions  # noqa: E402

SCRIPT = os.path.join(ROOT, "tools", "distributions.py")
CONFIGURED = """\
C++ compiler for the host machine: ccache g++-14 (gcc 14.2.0 "g++-14 (Debian 14.2.0-19) 14.2.0")
Run-time dependency catch2 found: YES 3.7.1
"""
# By Meson 1.0, and in its third line by 1.9.
TESTS = """\
 1/4 gyre:house / house_shape            OK        1.10s
 2/4 gyre:faults / departure_test        FAIL      2.20s   exit status 42
 3/4 collectives - gyre:comm_test        TIMEOUT  60.05s   killed by signal 15 SIGTERM
 4/4 gyre:unit / log_test                SKIP      0.01s
Ok:                 1
Expected Fail:      0
Fail:               1
Unexpected Pass:    0
Skipped:            1
Timeout:            1
"""


def ask(*arguments, **variables):
    return subprocess.run([sys.executable, SCRIPT, *arguments], env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=60, check=False)


class Distributions(unittest.TestCase):
    def test_help_is_one_screen_and_pretends_nothing(self):
        done = ask("--help", COLUMNS="80")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(len(done.stdout.splitlines()), 40)
        for word in (*distributions.SUITES, "Ubuntu 24.04", "unproven", "--cxx", "77"):
            self.assertIn(word, done.stdout)

    def test_a_name_that_is_not_there_is_refused_with_those_that_are(self):
        done = ask("debian-11")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no debian-11; there are debian-12, debian-13", done.stderr)

    def test_without_debootstrap_it_says_so_and_counts_as_skipped(self):
        with tempfile.TemporaryDirectory() as home:
            done = ask("debian-13", PATH=home, HOME=home)
            self.assertEqual(os.listdir(home), [])
        self.assertEqual(done.returncode, distributions.SKIPPED)
        self.assertIn("there is no debootstrap", done.stderr)

    def test_packages_come_from_where_apt_takes_those_of_debian(self):
        listed = "http://b.example/debian-security/\nhttp://a.example/x/debian/\n"
        self.assertEqual(distributions.mirror_of_apt(listed), "http://a.example/x/debian")
        self.assertEqual(distributions.mirror_of_apt("http://c.example/ubuntu/\n"),
                         distributions.USUAL_MIRROR)

    def test_lists_of_packages_may_be_as_old_as_this_machine_allows(self):
        dates = 'Acquire::Check-Valid-Until "false";\n'
        dump = 'APT "";\nAcquire "";\n' + dates + 'Acquire::AllowInsecureRepositories "1";\n'
        self.assertEqual(distributions.dates_of_apt(dump), dates)
        self.assertEqual(distributions.dates_of_apt('APT "";\n'), "")

    def test_arguments_behind_two_dashes_are_for_the_tests(self):
        said = distributions.read_arguments(["debian-13", "--build-only", "--", "--suite", "unit"])
        self.assertEqual((said.names, said.test_arguments), (["debian-13"], ["--suite", "unit"]))
        self.assertEqual(distributions.read_arguments([]).names, list(distributions.SUITES))

    def test_the_source_is_copied_anew_without_what_was_built(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(distributions, "ROOTS", folder):
            left = os.path.join(folder, "debian-13", "gyre", "build")
            os.makedirs(left)
            distributions.Root("debian-13", distributions.read_arguments([])).copy_source()
            copied = os.path.dirname(left)
            self.assertFalse(os.path.exists(left))
            self.assertTrue(os.access(os.path.join(copied, "tools", "dev"), os.X_OK))
            self.assertFalse([name for name in os.listdir(copied) if name.startswith("build")])

    def test_compiler_and_catch_are_read_from_what_meson_says(self):
        self.assertEqual(distributions.made_with(CONFIGURED), "g++-14 gcc 14.2.0, Catch2 3.7.1")

    def test_a_warning_fails(self):
        self.assertEqual(distributions.built("[1/2] Compiling warning.cc\n"), "built")
        with self.assertRaisesRegex(distributions.Failed, "1 warnings\n../lib/x.cc:3:5: warn"):
            distributions.built("[1/2] x\n../lib/x.cc:3:5: warning: y [-Wz]\n" * 2)

    def test_tests_that_fail_are_named(self):
        with self.assertRaisesRegex(distributions.Failed,
                                    "1 tests passed, 1 skipped.*: comm_test departure_test"):
            distributions.tested(1, TESTS)
        passed = "".join(line + "\n" for line in TESTS.splitlines() if "/4" not in line)
        self.assertEqual(distributions.tested(0, passed), "1 tests passed, 1 skipped")


if __name__ == "__main__":
    unittest.main()
