"""tools/dev gpu where there is no GPU: its messages there, and how its parts end. gpu_parts_test.py
ROOT [unittest arguments]."""
import contextlib
import glob
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import gpu_pack  # noqa: E402
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


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def matches(pattern, name, tags):
    """As Catch2 reads what selects tests: tags, tags that must not be, or a name's beginning."""
    if not pattern.startswith("["):
        return name.startswith(pattern.rstrip("*"))
    return all((tag in tags) != bool(no) for no, tag in re.findall(r"(~?)(\[\w+\])", pattern))


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
            self.assertIn(part.name, " ".join(done.stdout.split()))

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
        for words in ("meson setup", "with_mps.py", "[processes]", "--tool memcheck",
                      "--tool racecheck", "[one_grid]", "bench/gpu.py", "--only moves",
                      "CUDA_DEVICE_MAX_CONNECTIONS=32", "-u CUDA_DEVICE_MAX_CONNECTIONS"):
            self.assertIn(words, done.stdout)
        one = dev(self.folder, "--dry-run", "--only", "memcheck")
        self.assertEqual(len(one.stdout.splitlines()), 1)

    def test_a_tree_that_was_copied_built_builds_nothing(self):
        done = dev(self.folder, "--dry-run", "--built")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("meson", "ninja", "nvcc"):
            self.assertNotIn(word, done.stdout)
        self.assertIn("[one_grid]", done.stdout)

    def test_the_list_says_what_each_failure_means_in_the_order_of_a_first_run(self):
        done = dev(self.folder, "--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = gpu_parts.all_parts()
        self.assertEqual(len(done.stdout.splitlines()), len(parts))
        for part in parts:
            self.assertGreater(len(part.means), 10, part.name)
            self.assertIn(f"{part.name}: {part.means}", done.stdout)
        names = [part.name for part in parts]
        order = ["first kernels", "memcheck", "a grid for each rank 1 of 3", "first calls",
                 "first calls on 8 queues", "graphs", "processes", "PyTorch", "bench moves",
                 "bench limits"]
        self.assertEqual(sorted(order, key=names.index), order)

    def test_no_part_but_the_build_takes_more_than_nine_minutes(self):
        for part in gpu_parts.all_parts(built=True):
            self.assertLessEqual(part.seconds, 540, part.name)

    def test_packing_needs_a_compiler_and_a_new_folder(self):
        def packed(*words):
            done = subprocess.run([sys.executable, gpu_parts.__file__, "--pack", *words],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            return done.stderr

        self.assertIn("nvcc is not there", packed(os.path.join(self.folder, "new")))
        write(os.path.join(self.folder, "file"), "")
        self.assertIn("is not empty", packed(self.folder, "--nvcc", "nvcc"))

    def test_what_the_parts_select_of_the_tests_is_there(self):
        with open(os.path.join(ROOT, "tests", "gpu", "gpu_test.cc"), encoding="utf-8") as file:
            text = file.read()
        cases = [(name, tags) for name, tags in
                 re.findall(r'TEST_CASE\("([^"]*)",\s*"([^"]*)"\)', text)]
        self.assertGreater(len(cases), 20)
        chosen = set()
        for part in gpu_parts.all_parts():
            if not any(word.endswith("gpu_test") for word in part.command):
                continue
            for pattern in part.command[-1].split(","):
                found = [name for name, tags in cases if matches(pattern, name, tags)]
                self.assertTrue(found, f"{part.name}: {pattern}")
                chosen.update(found)
        self.assertEqual({name for name, _ in cases} - chosen, set())

    def test_the_variables_of_a_part_are_given_in_the_order_that_env_takes(self):
        for part in gpu_parts.all_parts():
            if "env" not in part.command:
                continue
            begin = part.command.index("env")
            end = next(i for i, word in enumerate(part.command) if word.endswith("gpu_test"))
            done = subprocess.run([*part.command[begin:end], "true"], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 0, f"{part.name}: {done.stderr}")

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
    def test_a_built_tree_needs_its_library_and_no_compiler(self):
        build, gpu_parts.BUILD = gpu_parts.BUILD, "/nowhere"
        try:
            missing = gpu_parts.machine(None, built=True)[1]
        finally:
            gpu_parts.BUILD = build
        self.assertTrue(any("libgyre.so is not there" in text for text in missing), missing)
        self.assertFalse(any("nvcc" in text for text in missing), missing)

    def test_no_compiler_is_missing(self):
        self.assertTrue(any("nvcc is not there" in text for text in gpu_parts.machine(None)[1]))
        self.assertTrue(any("nvcc is not there" in text
                            for text in gpu_parts.machine("/nowhere/nvcc")[1]))


class Parts(unittest.TestCase):
    def ended(self, command, seconds=20, needs=None):
        part = gpu_parts.Part("a part", seconds, command, needs, "what it means")
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

    def test_what_has_passed_of_a_library_is_not_run_again(self):
        with tempfile.TemporaryDirectory() as folder:
            told, build = os.path.join(folder, "told"), gpu_parts.BUILD
            library = os.path.join(folder, "lib", "api", "libgyre.so")
            os.makedirs(os.path.dirname(library))
            write(library, "one")

            def parts_run(*words):
                one = gpu_parts.Part("one", 20, ["sh", "-c", f"echo one >> {told}"])
                two = gpu_parts.Part("two", 20, ["sh", "-c", f"echo two >> {told}; exit 1"])
                write(told, "")
                with contextlib.redirect_stdout(io.StringIO()):
                    gpu_parts.run_parts([one, two], gpu_parts.parsed(words), folder, folder)
                with open(told, encoding="utf-8") as file:
                    return file.read().split(), one.outcome, two.outcome

            gpu_parts.BUILD = folder
            try:
                self.assertEqual(parts_run(), (["one", "two"], "passed", "failed"))
                self.assertEqual(parts_run(), (["two"], "passed", "failed"))
                self.assertEqual(parts_run("--again")[0], ["one", "two"])
                self.assertEqual(parts_run("--time", "5"), ([], "passed", "not yet"))
                write(library, "another")
                self.assertEqual(parts_run()[0], ["one", "two"])
            finally:
                gpu_parts.BUILD = build

    def test_a_copied_tree_records_the_commit_that_it_was_built_at(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bench/compare", "build-gpu"):
                os.makedirs(os.path.join(folder, name))
            shutil.copy(gpu_parts.rounds.__file__, os.path.join(folder, "bench/compare/rounds.py"))

            def told():
                return subprocess.run(
                    [sys.executable, "-c", "import rounds; print(rounds.commit())"], cwd=folder,
                    env={**os.environ, "PYTHONPATH": os.path.join(folder, "bench/compare"),
                         "GIT_CEILING_DIRECTORIES": os.path.dirname(folder)},
                    capture_output=True, text=True, timeout=60, check=True).stdout.strip()

            self.assertEqual(told(), "unknown")
            kept, gpu_parts.rounds.COMMIT_OF_A_COPY = (
                gpu_parts.rounds.COMMIT_OF_A_COPY,
                os.path.join(folder, "build-gpu", "commit.txt"))
            try:
                gpu_parts.keep_commit()
            finally:
                gpu_parts.rounds.COMMIT_OF_A_COPY = kept
            self.assertEqual(told(), gpu_parts.rounds.commit())

    def test_a_packed_tree_has_what_its_programs_load(self):
        library = (glob.glob("/lib/*/libz.so.1") + glob.glob("/lib*/libz.so.1"))[0]
        with tempfile.TemporaryDirectory() as build, tempfile.TemporaryDirectory() as folder:
            for name in (*gpu_pack.PROGRAMS[:3], "lib/api/libgyre.so", "lib/api/libgyre.so.0",
                         *gpu_pack.IMAGES, "commit.txt"):
                os.makedirs(os.path.dirname(os.path.join(build, name)), exist_ok=True)
                is_elf = name in gpu_pack.PROGRAMS or name.startswith("lib/")
                shutil.copy(library if name.startswith("lib/") else shutil.which("git") if is_elf
                            else __file__, os.path.join(build, name))
            kept, gpu_pack.BUILD = gpu_pack.BUILD, build
            try:
                self.assertGreater(gpu_pack.pack(folder), 1000)
            finally:
                gpu_pack.BUILD = kept
            packed = {os.path.relpath(os.path.join(place, name), folder)
                      for place, _, names in os.walk(folder) for name in names}
        needed = {name for name in packed if name.startswith("needed/")}
        self.assertIn("needed/libz.so.1", needed)  # which git loads
        self.assertFalse([name for name in needed if "libc.so" in name], needed)
        self.assertEqual(packed - needed, {
            *gpu_pack.PROGRAMS[:3], *gpu_pack.IMAGES, "commit.txt", "lib/api/libgyre.so",
            "lib/api/libgyre.so.0"})

    def test_a_part_that_the_time_cuts_short_is_left_to_the_next_call(self):
        part = gpu_parts.Part("slow", 30, ["sleep", "20"])
        least, gpu_parts.MIN_SECONDS = gpu_parts.MIN_SECONDS, 0
        try:
            with tempfile.TemporaryDirectory() as folder, \
                    contextlib.redirect_stdout(io.StringIO()):
                gpu_parts.run_parts([part], gpu_parts.parsed(["--time", "1"]), folder, folder)
        finally:
            gpu_parts.MIN_SECONDS = least
        self.assertEqual(part.outcome, "not yet")

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
        self.assertIn("- a part failed: what it means.", page)
        self.assertIn("| copy |  |  | 8 | 1.5 |", page)
        self.assertNotIn("| old |", page)
        self.assertIn("| 0.950 | >= 0.92 | holds |", page)
        self.assertIn("(gpu_ratios.svg)", page)


if __name__ == "__main__":
    unittest.main()
