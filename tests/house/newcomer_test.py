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
# What tools/dev would install, build or clean with. They fail and leave a trace.
STUBS = ("apt-get", "sudo", "meson", "ninja", "pip", "g++", "cmake", "clang-tidy", "clang-format",
         "rm", "mkdir")
# What tools/dev reads of the tree before it knows what to do.
READ_BY_DEV = ("tools/dev", "tools/dev_help.sh", "tools/gpu_parts.py", "tools/gpu_pieces.py",
               "bench/gpu/figures.py", "bench/compare/rounds.py", "tests/torch/upstream.py")

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
    ("tools/dev lint --help", 0, ["usage: tools/dev lint", "--all"], []),
    ("tools/dev lint --al", 2, ["did you mean --all?"], []),
    ("tools/dev setup --help", 0, ["usage: tools/dev setup", "--cuda"], []),
    ("tools/dev setup --cudda", 2, ["did you mean --cuda?"], []),
    ("tools/dev fuzz --help", 0, ["usage: tools/dev fuzz", "--seconds"], []),
    ("tools/dev fuzz --second 5", 2, ["did you mean --seconds?"], []),
    ("tools/dev fuzz --seconds soon", 2, ["--seconds takes a whole number"], []),
    ("tools/dev fuzz mesage", 2, ["did you mean message?"], []),
    ("tools/dev test --suit unit", 2, ["did you mean --suite?"], []),
    ("tools/dev gpu --agian", 2, ["did you mean --again?"], []),
    ("tools/dev biuld", 2, ["did you mean build?"], []),
    ("tools/dev zebra", 2, ["tools/dev --help lists them"], ["did you mean"]),
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
        program = self.programs.get(words[0], os.path.join(self.folder, words[0]))
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("GYRE_", "OMP_", "COLUMNS"))}
        environment.update(PATH=os.path.join(self.folder, "stubs") + ":" + os.environ["PATH"],
                           HOME=self.folder, GYRE_SOCKET_IFNAME="lo", PYTHONDONTWRITEBYTECODE="1")
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
    declared = {name for names in re.findall(r"^ +(-\S+)", theirs, re.M)
                for name in names.split(",")}
    assert len(declared) > 10, theirs
    return [f"tools/dev {command} --help does not name {name}" for name in sorted(declared)
            if name not in ("-h", "--help") and
            not re.search(rf"(?<![\w-]){name}(?![\w-])", ours)]


def main():
    root = os.path.abspath(sys.argv[1])
    programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[2:]}
    place = Place(root, programs)
    violations = []
    try:
        for row in DEV + helps_of_dev(root):
            if "/" in row[0].split()[0] or row[0].split()[0] in programs:
                violations += place.check(row)
        if "all_reduce_perf" in programs:
            violations += compare_helps(place, "bench", "all_reduce_perf")
    finally:
        shutil.rmtree(place.folder)
    tree.report(violations)


if __name__ == "__main__":
    main()
