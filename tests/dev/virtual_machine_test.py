"""tools/dev vm-test, as far as a machine can tell that boots no other: its words, its cases, and
what it makes of guests that end well, die or hang, which stand-ins play.
virtual_machine_test.py ROOT [unittest arguments]."""
import contextlib
import io
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = os.path.abspath(sys.argv.pop(1))
FOLDER = os.path.join(ROOT, "tests", "vm")
SCRIPT = os.path.join(FOLDER, "vm_test.py")
sys.path.insert(0, FOLDER)
import archive  # noqa: E402
import case as cases  # noqa: E402
import covering  # noqa: E402
import image  # noqa: E402
import machine  # noqa: E402
import run  # noqa: E402
import vm_test  # noqa: E402


def ask(*arguments, **variables):
    return subprocess.run([sys.executable, SCRIPT, *arguments], env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=60, check=False)


class Words(unittest.TestCase):
    def test_help_is_one_screen(self):
        done = ask("--help", COLUMNS="80")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(len(done.stdout.splitlines()), 45)
        for word in ("--short", "--shell-command", "--hosts", "77", "124", "log.txt"):
            self.assertIn(word, done.stdout)

    def test_a_case_that_is_not_there_is_refused(self):
        done = ask("verbz")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no case verbz", done.stderr)
        self.assertEqual(ask("verbs", "--shell-command", "true").returncode, 2)

    def test_a_list_has_a_line_for_each_case(self):
        self.assertEqual(len(ask("--list").stdout.splitlines()), len(cases.all_cases()))
        short = ask("--list", "--short").stdout
        self.assertIn("  verbs  ", short)
        self.assertNotIn("  collectives  ", short)

    def test_without_qemu_it_says_so_and_counts_as_skipped(self):
        with tempfile.TemporaryDirectory() as home:
            done = ask("--build", home, "verbs", PATH=home, HOME=home)
            self.assertEqual(os.listdir(home), ["vm"])
            with open(os.path.join(home, "vm", "results.xml"), encoding="utf-8") as file:
                self.assertIn('tests="1" failures="0" errors="0" skipped="1"', file.read())
        self.assertEqual(done.returncode, vm_test.SKIPPED)
        self.assertRegex(done.stderr, "skipped: (there is no qemu|the guest is for x86_64)")


class Cases(unittest.TestCase):
    def test_each_says_what_it_shows_and_how_long_it_may_take(self):
        for one in cases.all_cases():
            with self.subTest(one.name):
                self.assertGreater(len(one.about().split()), 4)
                self.assertIn(one.hosts, (1, 2))
                self.assertGreater(one.seconds, 0)

    def test_one_without_a_limit_or_with_another_word_is_refused(self):
        with self.assertRaisesRegex(ValueError, "there is no second"):
            cases.Case("x", "# X.\n#: second 3\n")
        with self.assertRaises(KeyError):
            cases.Case("x", "# X.\n")


class Kvm(unittest.TestCase):
    def test_a_device_alone_is_no_kvm(self):
        with tempfile.NamedTemporaryFile("w+", suffix="cpuinfo") as cpuinfo:
            for flags, found in (("fpu sse2", False), ("fpu vmxx", False), ("fpu vmx sse2", True),
                                 ("svm", True)):
                cpuinfo.seek(0)
                cpuinfo.truncate()
                cpuinfo.write(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t: svm\n")
                cpuinfo.flush()
                self.assertEqual(machine.has_kvm(cpuinfo.name, cpuinfo.name), found, flags)
                self.assertFalse(machine.has_kvm(cpuinfo.name, "/nowhere"))


class CoveringArrays(unittest.TestCase):
    def test_each_pair_of_values_is_in_a_row_and_rows_are_few(self):
        factors = covering.TABLES["rdma"]
        rows = covering.rows(factors)
        for one, other in itertools.combinations(factors, 2):
            seen = {(row[one], row[other]) for row in rows}
            self.assertEqual(seen, set(itertools.product(factors[one], factors[other])))
        self.assertEqual(len(rows), len(factors["program"]) * len(factors["bytes"]))
        self.assertEqual(rows, covering.rows(factors))


class Archives(unittest.TestCase):
    def test_folders_come_before_what_is_in_them_and_nothing_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.cpio")
            with archive.Archive(path) as made:
                made.add("/a/b/c", "file", b"hello")
                made.add("a/b/d", "link", b"c")
                made.add("a/b/c", "file", b"other")
            with open(path, "rb") as file:
                data = file.read()
        names, place = [], 0
        while not names or names[-1] != b"TRAILER!!!":
            size, name_size = (int(data[place + at:place + at + 8], 16) for at in (54, 94))
            names.append(data[place + 110:place + 110 + name_size - 1])
            place += (110 + name_size + 3) // 4 * 4 + (size + 3) // 4 * 4
        self.assertEqual(names, [b"a", b"a/b", b"a/b/c", b"a/b/d", b"TRAILER!!!"])
        self.assertEqual(len(data) % 512, 0)

    def test_a_kernel_that_is_not_packed_by_xz_boots_as_it_is(self):
        whole = bytearray(4096)
        whole[0x1f1] = 1
        self.assertEqual(image.unpacked(bytes(whole)), bytes(whole))


class Guest:
    """In Machine's place. `fates` says what becomes of cases: a code, "dies", "hangs", or "late":
    the second machine is done long after the first."""
    fates, boots = {}, 0

    def __init__(self, kernel, archives, job, shared, host=1, ports=None):
        self.job, self.host, self.ended = job, host, False
        Guest.boots += host == 1
        with open(os.path.join(job, "order"), encoding="utf-8") as file:
            for row in file.read().splitlines():
                name = row.split()[0]
                self.leave(f"begun.{name}", "")
                self.leave(f"output.{name}", f"{name} speaks\n")
                fate = Guest.fates.get(name, 0)
                if fate in ("dies", "hangs") or (fate == "late" and host == 2):
                    self.ended = fate == "dies"
                    self.done_at = time.monotonic() + 0.1 if fate == "late" else None
                    self.last = name
                    return
                fate = 0 if fate == "late" else fate
                self.leave(f"result.{name}", f"{fate} 1.0 3.5\n")
        self.ended = True

    def leave(self, name, text):
        with open(os.path.join(self.job, name), "w", encoding="utf-8") as file:
            file.write(text)

    def has_ended(self):
        if not self.ended and self.done_at and time.monotonic() > self.done_at:
            self.leave(f"result.{self.last}", "0 1.0 4.5\n")
            self.ended = True
        return self.ended

    def end(self):
        self.ended = True

    def said(self):
        return "Kernel panic"


def a_case(name, hosts=1, seconds=0):
    return cases.Case(name, f"# A case.\n#: seconds {seconds}\n#: hosts {hosts}\n")


class Runs(unittest.TestCase):
    def run_cases(self, found, fates, seconds=60):
        Guest.fates, Guest.boots = fates, 0
        self.log, said = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "Machine", Guest), \
                mock.patch.object(run, "SPARE_S", 0.2), contextlib.redirect_stdout(said):
            runner = run.Runner("kernel", "tools", folder, folder, self.log,
                                time.monotonic() + seconds)
            results = runner.run(found)
        self.said = said.getvalue()
        return [(one.case.name, one.state, one.code) for one in results]

    def test_one_boot_runs_all_and_tells_codes_apart(self):
        self.assertEqual(
            self.run_cases([a_case("a"), a_case("b"), a_case("c")], {"b": 3, "c": 77}),
            [("a", "ok", 0), ("b", "FAILED", 3), ("c", "skipped", 77)])
        self.assertEqual(Guest.boots, 1)
        self.assertIn("     | b speaks", self.said)
        self.assertNotIn("| a speaks", self.said)
        self.assertIn("=== a: ok", self.log.getvalue())

    def test_a_guest_that_dies_costs_one_case_and_shows_its_console(self):
        self.assertEqual(self.run_cases([a_case("a"), a_case("b"), a_case("c")], {"b": "dies"}),
                         [("a", "ok", 0), ("b", "FAILED", run.DIED), ("c", "ok", 0)])
        self.assertEqual(Guest.boots, 2)
        self.assertIn("Kernel panic", self.said)

    def test_a_guest_that_hangs_costs_one_case(self):
        self.assertEqual(self.run_cases([a_case("a"), a_case("b")], {"a": "hangs"}),
                         [("a", "FAILED", run.TIMED_OUT), ("b", "ok", 0)])

    def test_the_limit_of_the_run_fails_what_is_left(self):
        found = [a_case("a", seconds=60), a_case("b")]
        self.assertEqual(self.run_cases(found, {"a": "hangs"}, 0.3),
                         [("a", "FAILED", run.TIMED_OUT), ("b", "FAILED", run.TIMED_OUT)])
        self.assertEqual(Guest.boots, 1)

    def test_cases_of_two_machines_have_a_boot_of_their_own(self):
        self.assertEqual(self.run_cases([a_case("a", 2), a_case("b")], {"a": 5}),
                         [("b", "ok", 0), ("a", "FAILED", 5)])
        self.assertEqual(Guest.boots, 2)
        self.assertIn("--- host 2\na speaks", self.log.getvalue())

    def test_one_of_two_machines_may_be_done_long_before_the_other(self):
        self.assertEqual(self.run_cases([a_case("a", 2)], {"a": "late"}), [("a", "ok", 0)])

    def test_the_summary_counts(self):
        results = [run.Result(a_case("a"), "ok", 1), run.Result(a_case("b"), "FAILED", 2, "<why>")]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.xml")
            self.assertEqual(vm_test.write_summary(path, results, 3),
                             "1 passed, 1 failed, 0 skipped")
            with open(path, encoding="utf-8") as file:
                text = file.read()
        self.assertTrue(re.search('tests="2" failures="1" errors="0" skipped="0"', text), text)
        self.assertIn("&lt;why&gt;", text)


if __name__ == "__main__":
    unittest.main()
