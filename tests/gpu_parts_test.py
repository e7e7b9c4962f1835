"""tools/dev gpu, as far as a machine without a GPU can tell: what it says there, and how parts end.
gpu_parts_test.py ROOT [unittest arguments]."""
import contextlib
import io
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

    def test_a_dry_run_names_every_command_and_runs_none(self):
        done = dev(self.folder, "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("--suite gpu", "with_mps.py", "[processes]", "--tool memcheck",
                      "--tool racecheck", "[one_grid]", "bench/gpu.py"):
            self.assertIn(words, done.stdout)
        one = dev(self.folder, "--dry-run", "--only", "memcheck")
        self.assertEqual(len(one.stdout.splitlines()), 1)

    def test_what_the_parts_select_of_the_tests_is_there(self):
        with open(os.path.join(ROOT, "tests", "gpu_test.cc"), encoding="utf-8") as file:
            text = file.read()
        for part in gpu_parts.all_parts():
            for word in part.command:
                if word.startswith("["):
                    self.assertIn(word, text)

    def test_a_part_that_does_not_exist_is_refused(self):
        done = dev(self.folder, "--only", "everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no part everything", done.stderr)


class Mps(unittest.TestCase):
    def run_with(self, control, *command):
        """with_mps.py where the control program is this script, and what the script was told."""
        with tempfile.TemporaryDirectory() as folder:
            if control is not None:
                path = os.path.join(folder, "nvidia-cuda-mps-control")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho \"$@ $(cat)\" >> {folder}/told\n{control}\n")
                os.chmod(path, 0o755)
            done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "with_mps.py"),
                                   *command], env={"PATH": f"{folder}:/usr/bin:/bin"},
                                  capture_output=True, text=True, timeout=60)
            told = ""
            if os.path.exists(os.path.join(folder, "told")):
                with open(os.path.join(folder, "told"), encoding="utf-8") as file:
                    told = file.read()
            return done, told

    def test_the_service_lives_as_long_as_the_command(self):
        done, told = self.run_with("", "sh", "-c", 'ls -d "$CUDA_MPS_PIPE_DIRECTORY"; exit 5')
        self.assertEqual(done.returncode, 5)
        self.assertIn("/pipes", done.stdout)
        self.assertEqual([line.strip() for line in told.splitlines()], ["-d", "quit"])

    def test_where_there_is_none_it_is_skipped(self):
        if shutil.which("nvidia-cuda-mps-control", path="/usr/bin:/bin"):
            self.skipTest("MPS is installed")
        done, _ = self.run_with(None, "true")
        self.assertEqual(done.returncode, gpu_parts.SKIPPED)
        self.assertIn("nvidia-cuda-mps-control", done.stderr)

    def test_one_that_does_not_start_fails(self):
        done, told = self.run_with("exit 3", "sh", "-c", "echo ran")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("ran", done.stdout)
        self.assertNotIn("quit", told)


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

    def test_a_part_that_takes_its_time_shows_signs_of_life(self):
        beat, gpu_parts.BEAT_S = gpu_parts.BEAT_S, 0.2
        shown = io.StringIO()
        try:
            with contextlib.redirect_stdout(shown):
                self.ended(["sh", "-c", "echo so far; sleep 1"])
        finally:
            gpu_parts.BEAT_S = beat
        self.assertIn("a part, 0 s: so far", shown.getvalue())

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
            with open(os.path.join(folder, "gpu.jsonl"), "w", encoding="utf-8") as file:
                file.write(json.dumps({"commit": commit, "ratios": {"copy": 0.95}}) + "\n")
            gpu_parts.write_results([good, bad], {"gpu": "a GPU"}, folder)
            with open(os.path.join(folder, "gpu_ratios.svg"), encoding="utf-8") as file:
                self.assertIn("0.950", file.read())
            with open(os.path.join(folder, "gpu_parts.jsonl"), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            with open(os.path.join(folder, "gpu_parts.md"), encoding="utf-8") as file:
                page = file.read()
        self.assertEqual([line["outcome"] for line in lines], ["passed", "failed"])
        self.assertEqual(lines[0]["gpu"], "a GPU")
        self.assertIn("| a part | failed |", page)
        self.assertIn("| copy |  |  | 8 | 1.5 |", page)
        self.assertNotIn("| old |", page)
        self.assertIn("| 0.950 | >= 0.92 | holds |", page)
        self.assertIn("(gpu_ratios.svg)", page)


if __name__ == "__main__":
    unittest.main()
