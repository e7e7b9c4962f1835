"""What a newcomer types, and what comes of it: a table of commands with their exit code, texts that
are there and texts that are not. No row installs, builds, creates or deletes anything.
newcomer_test.py ROOT [PROGRAM...]; rows of programs that were not built are left out."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import tree

PATIENCE_S = 20
MAX_COLUMNS = 100
# What tools/dev would install, build or clean with. They fail and leave a trace.
STUBS = ("apt-get", "sudo", "meson", "ninja", "pip", "g++", "cmake", "clang-tidy", "clang-format",
         "rm", "mkdir")
# What tools/dev reads of the tree before it knows what to do.
READ_BY_DEV = ("tools/dev", "tools/dev_build.sh", "tools/dev_help.sh", "tools/dev_jobs.sh",
               "tools/dev_machine.sh", "tools/dev_release.sh", "tools/gpu_parts.py",
               "tools/error_branches.py", "tools/llvm_coverage.py", "tools/test_programs.py",
               "tools/gpu_pack.py", "tools/gpu_pieces.py", "bench/gpu/figures.py",
               "tests/torch/upstream.py", "tools/pypi.py",
               *(f"bench/compare/{name}.py" for name in (
                   "compare", "compare_chart", "compare_table", "contenders", "interleaved",
                   "rank_job", "recorded", "rounds", "slow_rounds")),
               *(f"tests/vm/{name}.py" for name in ("archive", "case", "covering", "image",
                                                    "machine", "run", "vm_test")))

# typed, exit code, texts that are there, texts that are not
DEV = [
    ("tools/dev", 2, ["usage: tools/dev COMMAND"], []),
    ("tools/dev --help", 0, ["usage: tools/dev COMMAND"], []),
    ("tools/dev help clean", 0, ["usage: tools/dev clean"], []),
    ("tools/dev clean --help", 0, ["usage: tools/dev clean"], []),
    ("tools/dev clean -x", 2, ["clean has no option -x"], []),
    ("tools/dev clean build", 2, ['clean takes no "build"'], []),
    ("tools/dev torch --help", 0, ["usage: tools/dev torch", "--smoke"], []),
    ("tools/dev torch -k gather --help", 0, ["usage: tools/dev torch"], []),
    ("tools/dev torch --smok", 2, ["did you mean --smoke?"], []),
    ("tools/dev torch-upstream --bth", 2, ["did you mean --both?"], []),
    ("tools/dev bench -h", 0, ["usage: tools/dev bench", "--minbytes"], []),
    ("tools/dev bench --minbyte 8", 2, ["did you mean --minbytes?"], []),
    ("tools/dev compare --help", 0, ["usage: tools/dev compare", "--quick", "--cold"], []),
    ("tools/dev compare --quik", 2, ["did you mean --quick?"], []),
    ("tools/dev compare all_redcue", 2, ["did you mean all_reduce?"], []),
    ("tools/dev compare --peers openmpy", 2, ["did you mean openmpi?"], []),
    ("tools/dev compare --sizes 4X", 2, ['"4X" is no size'], ["parse_size"]),
    ("tools/dev compare --ranks 1", 2, ["--ranks takes a whole number from 2"], []),
    ("tools/dev train --help", 0, ["usage: tools/dev train", "-n RANKS"], []),
    ("tools/dev train -n two", 2, ["-n takes a whole number from 1"], []),
    ("tools/dev train --modle gpt", 2, ["did you mean --model?"], []),
    ("tools/dev launchers --help", 0, ["usage: tools/dev launchers"], []),
    ("tools/dev launchers srun", 2, ['launchers takes no "srun"'], []),
    ("tools/dev lint --help", 0, ["usage: tools/dev lint", "--all"], []),
    ("tools/dev lint --al", 2, ["did you mean --all?"], []),
    ("tools/dev setup --help", 0, ["usage: tools/dev setup", "--cuda"], []),
    ("tools/dev setup --cudda", 2, ["did you mean --cuda?"], []),
    ("tools/dev coverage --help", 0, ["usage: tools/dev coverage", "rdma"], []),
    ("tools/dev coverage rmda", 2, ["did you mean rdma?"], []),
    ("tools/dev fuzz --help", 0, ["usage: tools/dev fuzz", "--seconds"], []),
    ("tools/dev fuzz --second 5", 2, ["did you mean --seconds?"], []),
    ("tools/dev fuzz --seconds soon", 2, ["--seconds takes a whole number"], []),
    ("tools/dev fuzz mesage", 2, ["did you mean message?"], []),
    ("tools/dev test --suit unit", 2, ["did you mean --suite?"], []),
    ("tools/dev gpu --agian", 2, ["did you mean --again?"], []),
    ("tools/dev biuld", 2, ["did you mean build?"], []),
    ("tools/dev zebra", 2, ["tools/dev --help lists them"], ["did you mean"]),
]

GYRE = [
    ("gyre", 2, ["Usage: gyre SUBCOMMAND"], []),
    ("gyre --help", 0, ["Usage: gyre SUBCOMMAND", "Examples:"], []),
    ("gyre hlep", 2, ["did you mean help?"], []),
    ("gyre rnu", 2, ["did you mean run?"], []),
    ("gyre run", 2, ["give -n N, how many ranks"], ["required"]),
    ("gyre run -n 4", 2, ["name the program to start, as in gyre run -n 4 ./program"], ["which"]),
    ("gyre run -n two", 2, ["-n: two is not a number"], ["range"]),
    ("gyre run --np=two true", 2, ["--np: two is not a number"], []),
    ("gyre run -n 0 true", 2, ["-n: 0 is not from 1 to 4096"], []),
    ("gyre run -n", 2, ["-n needs a value"], []),
    ("gyre run -n 2 --timeuot 5 true", 2, ["did you mean --timeout?"], []),
    ("gyre run -n 2 nosuchprogram", 127, ['cannot start "nosuchprogram": not in PATH'],
     ["OMP_NUM_THREADS"]),
    ("gyre run -n 2 true", 0, [], ["OMP_NUM_THREADS"]),
    ("GYRE_DEBUG=INFO gyre run -n 2 true", 0, ["OMP_NUM_THREADS=1"], []),
    ("GYRE_DEBUG=DEBUG gyre run -n 2 true", 2,
     ["one of NONE, VERSION, WARN, INFO, TRACE", "see gyre settings GYRE_DEBUG"], ["run --help"]),
    ("gyre run -n 1 --log-dir logs true", 1, ["logs/rank-0.out is no regular file"], []),
    ("gyre plan all_reduce", 0, ["ring all_reduce, 4 ranks"], []),
    ("gyre plan --help", 0, ["Examples:", "gyre plan all_reduce"], []),
    ("gyre plan -c allreduce", 0, ["ring all_reduce, 4 ranks"], []),
    ("gyre plan AllReduce", 0, ["ring all_reduce, 4 ranks"], []),
    ("gyre plan all-reduce", 0, ["ring all_reduce, 4 ranks"], []),
    ("gyre plan alreduce", 2, ['no collective "alreduce"'], []),
    ("gyre plan -c all_to_all", 0, ["pairwise all_to_all, 4 ranks"], []),
    ("gyre plan --list -c all_to_all", 0, ["pairwise"], ["ring"]),
    ("gyre plan --list --json", 0, ['"algorithm": "ring"'], []),
    ("gyre plan --list --draw picture.svg", 2, ["not --draw"], []),
    ("gyre plan memory --help", 0, ["Usage: gyre plan memory", "Examples:"], []),
    ("gyre why --help", 0, ["Usage: gyre why", "Examples:"], []),
    ("gyre why 999999", 1, ['"999999" is no process'], []),
    ("gyre settings --help", 0, ["Usage: gyre settings", "Examples:"], []),
    ("gyre settings", 0, ["this process's rank (default unset; a whole number from 0"], []),
    ("gyre settings GYRE_DEBUG", 0, ["how much to log", "default WARN"], ["GYRE_TIMEOUT"]),
    ("gyre settings debug", 0, ["how much to log"], ["GYRE_TIMEOUT"]),
    ("gyre settings GYRE_DEBGU", 2, ["did you mean GYRE_DEBUG?"], []),
]
BENCH = [
    ("all_reduce_perf --help", 0, ["Usage: all_reduce_perf", "Examples:"], []),
    ("all_reduce_perf --bogus", 2, ["there is no option --bogus"], []),
    ("all_reduce_perf --minbyte=8 --hlep", 2, ["did you mean --help?"], []),
    ("all_reduce_perf -x", 2, ["-x needs a value"], ["cta_policy"]),
    ("all_reduce_perf --cta_policy", 2, ["--cta_policy needs a value"], []),
    ("all_reduce_perf -n many", 2, ["-n: many is not a number"], []),
    ("all_reduce_perf -d flaot", 2, ["did you mean float?"], []),
]


class Place:
    """A folder to type in: a copy of what tools/dev reads, and programs that only leave a trace."""

    def __init__(self, root, programs):
        self.folder = tempfile.mkdtemp()
        self.programs = programs
        self.trace = os.path.join(self.folder, "trace")
        for path in READ_BY_DEV:
            self.bring(root, path)
        for name in os.listdir(os.path.join(root, "tests/fuzz/corpus")):
            os.makedirs(os.path.join(self.folder, "tests/fuzz/corpus", name))
        os.mkdir(os.path.join(self.folder, "build"))
        os.mkdir(os.path.join(self.folder, "logs"))
        os.mkfifo(os.path.join(self.folder, "logs/rank-0.out"))  # for --log-dir
        os.mkdir(os.path.join(self.folder, "stubs"))
        for name in STUBS:
            path = os.path.join(self.folder, "stubs", name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\necho "{name} $*" >>"{self.trace}"\nexit 1\n')
            os.chmod(path, 0o755)

    def bring(self, root, path):
        if not os.path.exists(os.path.join(root, path)):
            return
        target = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(root, path), target)

    def content(self):
        return sorted(os.path.join(folder, name)
                      for folder, folders, names in os.walk(self.folder)
                      for name in folders + names if "__pycache__" not in folder + name)

    def type(self, words):
        """Words as a shell takes them: NAME=VALUE, a program and its arguments."""
        given = []
        while "=" in words[0]:
            given.append(words.pop(0).split("=", 1))
        program = self.programs.get(words[0], os.path.join(self.folder, words[0]))
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("GYRE_", "OMP_", "COLUMNS"))}
        environment.update(PATH=os.path.join(self.folder, "stubs") + ":" + os.environ["PATH"],
                           HOME=self.folder, GYRE_SOCKET_IFNAME="lo", PYTHONDONTWRITEBYTECODE="1",
                           **dict(given))
        return subprocess.run([program, *words[1:]], env=environment, cwd=self.folder, text=True,
                              capture_output=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)

    def check(self, row):
        """What is wrong with what this row does, one text each."""
        typed, code, wanted, unwanted = row
        before = self.content()
        try:
            done = self.type(shlex.split(typed))
        except subprocess.TimeoutExpired:
            return [f"{typed}: still runs after {PATIENCE_S} s"]
        shown = " ".join((done.stdout + done.stderr).split())
        found = []
        if done.returncode != code:
            found.append(f"exit code {done.returncode}, not {code}")
        found += [f'"{text}" is not there' for text in wanted if text not in shown]
        found += [f'"{text}" is there' for text in unwanted if text in shown]
        if "help" in typed or "settings" in typed:
            found += [f"a line of {len(line)} columns" for line in done.stdout.splitlines()
                      if len(line) > MAX_COLUMNS]
        if os.path.exists(self.trace):
            with open(self.trace, encoding="utf-8") as file:
                found.append(f"it calls {file.read().strip()}")
            os.remove(self.trace)
        after = self.content()
        if after != before:
            found.append(f"it made or removed {sorted(set(before) ^ set(after))}")
        return [f"{typed}: {what}\n    {shown[:600]}" for what in found]


def helps_of_dev(root):
    """--help and -h of each command of tools/dev, first and after another word."""
    names = re.findall(r"^command_(\w+)\(\)", tree.read(root, "tools/dev"), re.M)
    assert len(names) > 10, names
    return [(f"tools/dev {name} {words}", 0, [f"usage: tools/dev {name}"], [])
            for name in (name.replace("_", "-") for name in names)
            for words in ("--help", "-h", "other --help")]


def compare_helps(place, command, program):
    """tools/dev refuses what its own text does not name: it has to name all of the program's."""
    ours = place.type(["tools/dev", command, "--help"]).stdout
    theirs = place.type([program, "--help"]).stdout
    declared = {name for names in re.findall(r"^ +(-.*?)(?:  |$)", theirs, re.M)
                for name in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", names)}
    assert len(declared) > 10, theirs
    return [f"tools/dev {command} --help does not name {name}" for name in sorted(declared)
            if name not in ("-h", "--help") and
            not re.search(rf"(?<![\w-]){name}(?![\w-])", ours)]


def check_backend(place, root, version):
    """tools/pytorch with a PyTorch that it cannot be built for: one clear line, and no compiler."""
    folder = os.path.join(place.folder, "python")
    os.makedirs(os.path.join(folder, "torch"))
    with open(os.path.join(folder, "torch/__init__.py"), "w", encoding="utf-8") as file:
        file.write(f'__version__ = "{version}"\n')
    done = subprocess.run(["meson", "setup", os.path.join(place.folder, "backend"),
                           os.path.join(root, "tools/pytorch"),
                           f"-Dpython_with_torch={sys.executable}"], text=True, check=False,
                          env={**os.environ, "PYTHONPATH": folder}, capture_output=True,
                          timeout=6 * PATIENCE_S, stdin=subprocess.DEVNULL)
    wanted = f"needs PyTorch 2.6 or newer, and {sys.executable} has {version}"
    if done.returncode != 0 and wanted in done.stdout and "Traceback" not in done.stdout:
        return []
    return [f"tools/pytorch with PyTorch {version}: exit code {done.returncode}\n{done.stdout}"]


def main():
    root = os.path.abspath(sys.argv[1])
    programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[2:]}
    place = Place(root, programs)
    violations = []
    try:
        for row in DEV + helps_of_dev(root):
            violations += place.check(row)
        for name, rows in (("gyre", GYRE), ("all_reduce_perf", BENCH)):
            if name in programs:
                violations += [what for row in rows for what in place.check(row)]
        if "all_reduce_perf" in programs:
            violations += compare_helps(place, "bench", "all_reduce_perf")
        violations += check_backend(place, root, "2.5.1+cpu")
    finally:
        shutil.rmtree(place.folder)
    tree.report(violations)


if __name__ == "__main__":
    main()
