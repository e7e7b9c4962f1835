"""tools/dev gpu, as far as a machine without a GPU can tell: what it says there, and how parts end.
gpu_parts_test.py ROOT [unittest arguments]."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import gpu_parts  # noqa: E402

# All that tools/dev calls on its way; no nvidia-smi, no nvcc.
PROGRAMS = ("bash", "env", "readlink", "dirname", "cat", "sed", "sort", "uniq", "awk", "paste",
            "git", "id", "grep")


def dev(folder, *arguments):
    """tools/dev in a PATH that has PROGRAMS and what lies in the folder."""
    for name in PROGRAMS:
        if shutil.which(name) and not os.path.exists(os.path.join(folder, name)):
            os.symlink(shutil.which(name), os.path.join(folder, name))
    if not os.path.exists(os.path.join(folder, "python3")):
        os.symlink(sys.executable, os.path.join(folder, "python3"))
    return subprocess.run([os.path.join(ROOT, "tools", "dev"), "gpu", *arguments],
                          env={"PATH": folder, "HOME": folder}, capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL)


class OnThisMachine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def program(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)

    def test_help_names_every_part(self):
        done = dev(self.folder, "--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in gpu_parts.all_parts():
            self.assertIn(part.name, done.stdout)

    def test_without_a_driver_it_says_so_and_fails(self):
        done = dev(self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nvidia-smi is not there: install NVIDIA's driver", done.stderr)

    def test_a_driver_that_finds_no_gpu_is_told_apart(self):
        self.program("nvidia-smi", "echo No devices were found; exit 6")
        done = dev(self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nvidia-smi finds no GPU", done.stderr)

    def test_a_part_that_does_not_exist_is_refused(self):
        done = dev(self.folder, "--only", "everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no part everything", done.stderr)


class Missing(unittest.TestCase):
    def test_no_compiler_is_missing(self):
        self.assertTrue(any("nvcc is not there" in text for text in gpu_parts.machine(None)[1]))
        self.assertTrue(any("nvcc is not there" in text
                            for text in gpu_parts.machine("/nowhere/nvcc")[1]))


class Parts(unittest.TestCase):
    def ended(self, command, seconds=20, needs=None):
        part = gpu_parts.Part("a part", seconds, command, needs)
        with tempfile.TemporaryDirectory() as logs:
            gpu_parts.run(part, logs)
        return part

    def test_outcomes_follow_from_exit_codes(self):
        self.assertEqual(self.ended(["true"]).outcome, gpu_parts.PASSED)
        self.assertEqual(self.ended(["false"]).outcome, gpu_parts.FAILED)
        self.assertEqual(self.ended(["sh", "-c", "exit 77"]).outcome, gpu_parts.SKIP)
        self.assertEqual(self.ended(["/nowhere/program"]).outcome, gpu_parts.FAILED)
        absent = self.ended(["true"], needs="/nowhere/program")
        self.assertEqual(absent.outcome, gpu_parts.ABSENT)
        self.assertIn("there is no", absent.why)

    def test_a_part_ends_at_its_limit_with_all_that_it_started(self):
        began = time.monotonic()
        part = self.ended(["sh", "-c", "sleep 60 & wait"], seconds=1)
        self.assertEqual(part.outcome, gpu_parts.LATE)
        self.assertLess(time.monotonic() - began, 30)

    def test_what_meson_skipped_has_not_passed(self):
        with tempfile.TemporaryDirectory() as build:
            os.mkdir(os.path.join(build, "meson-logs"))
            with open(os.path.join(build, "meson-logs", "testlog.json"), "w",
                      encoding="utf-8") as file:
                file.write('{"name": "one", "result": "OK"}\n{"name": "two", "result": "SKIP"}\n')
            self.assertEqual(gpu_parts.skipped_in(build), ["two"])

    def test_results_are_lines_and_a_page(self):
        good, bad = self.ended(["true"]), self.ended(["false"])
        with tempfile.TemporaryDirectory() as folder:
            commit = gpu_parts.rounds.commit()
            with open(os.path.join(folder, "gpu_moves.jsonl"), "w", encoding="utf-8") as file:
                for row in ({"commit": commit, "collective": "copy", "bytes": 8, "p50_us": 1.5},
                            {"commit": "another", "collective": "old", "bytes": 8, "p50_us": 9}):
                    file.write(json.dumps(row) + "\n")
            gpu_parts.write_results([good, bad], {"gpu": "a GPU"}, folder)
            with open(os.path.join(folder, "gpu_parts.jsonl"), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            with open(os.path.join(folder, "gpu_parts.md"), encoding="utf-8") as file:
                page = file.read()
        self.assertEqual([line["outcome"] for line in lines], ["passed", "failed"])
        self.assertEqual(lines[0]["gpu"], "a GPU")
        self.assertIn("| a part | failed |", page)
        self.assertIn("| copy |  |  | 8 | 1.5 |", page)
        self.assertNotIn("old", page)


if __name__ == "__main__":
    unittest.main()
