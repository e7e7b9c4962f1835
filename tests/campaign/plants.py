#!/usr/bin/env python3
"""Plants bugs in the library, one at a time, and counts how many the tests and the campaign catch.

A plant is a patch in plants/: it reverts a fix, or introduces a bug of a kind that occurred before.
The text before its first "diff" line describes the bug, and

  tests: NAME ...     tests of the default run that may catch it
  seeds: A..B NAME    scenarios of the campaign that may; the fault's name may be left out

  plants.py BUILD                  all of them, with the compiler settings of that build folder
  plants.py BUILD --only TEXT      those whose name contains it
  plants.py --take COMMIT NAME     writes plants/NAME.patch, which reverts the fix of that commit

The sources are a work tree of their own at HEAD, in BUILD/plants, so that nothing here changes.
Exit code 1 if fewer than 95 % are caught, or if a patch does not apply or build any more. A test
that catches a plant has to pass without it.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import test_programs  # noqa: E402

FOLDER = os.path.join(HERE, "plants")
LIBRARY = ["lib", "transports", "kernels/cpu", "tools/gyre"]
# What scripts start that are tests.
PROGRAMS = ["tests/campaign/campaign_rank", "tools/gyre", "bench/all_reduce_perf",
            "tests/rank_programs/busy_rank", "tests/rank_programs/exiting_rank",
            "tests/rank_programs/steady_rank", "tests/rank_programs/stuck_rank"]
MIN_CAUGHT = 0.95
BUILD_S, TEST_S, SEEDS_S = 3600, 600, 900


class Plant:
    def __init__(self, path):
        self.path = path
        self.name = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8") as file:
            preface = file.read().split("\ndiff ", 1)[0]
        self.tests = self.field(preface, "tests").split()
        seeds = self.field(preface, "seeds").split()
        self.seeds, self.fault = (seeds + [None, None])[:2]

    @staticmethod
    def field(preface, name):
        found = re.search(rf"^{name}:(.*)$", preface, re.M)
        return found.group(1) if found else ""


class Tree:
    """A work tree with a build of its own, in which one plant stands at a time."""

    def __init__(self, build):
        self.top = os.path.join(os.path.abspath(build), "plants")
        self.source, self.build = (os.path.join(self.top, name) for name in ("source", "build"))
        self.sound = {}  # of what may catch: does it pass without a plant?

    def make(self):
        if not os.path.isdir(self.source):
            self.call(["git", "-C", ROOT, "worktree", "prune"])
            self.call(["git", "-C", ROOT, "worktree", "add", "--detach", self.source, "HEAD"])
        head = self.call(["git", "-C", ROOT, "rev-parse", "HEAD"]).stdout.strip()
        self.call(["git", "-C", self.source, "checkout", "--force", "--detach", head])
        if not os.path.isdir(self.build):
            self.call(["meson", "setup", self.build, self.source, "-Dcuda=disabled"])

    def apply(self, plant, *reverse):
        return self.call(["git", "-C", self.source, "apply", *reverse, plant.path], may_fail=True)

    def compile(self, targets):
        return self.call(["ninja", "-C", self.build, *targets], may_fail=True)

    @staticmethod
    def call(command, may_fail=False, timeout=BUILD_S):
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        if done.returncode != 0 and not may_fail:
            raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done

    # ------------------------------------------------------------------ catching

    def targets(self, plant):
        commands = test_programs.commands(self.build, plant.tests)
        # A script's command begins with Python, which is at an absolute place.
        return [*PROGRAMS, *{first for first, *_ in commands.values() if not os.path.isabs(first)}]

    def catchers(self, plant):
        """{what may catch it: (command, how long it may take)}."""
        found = {name: (["meson", "test", "-C", self.build, "--no-rebuild", name], TEST_S)
                 for name in plant.tests}
        if plant.seeds is not None:
            command = [sys.executable, os.path.join(HERE, "campaign.py"), "--seeds", plant.seeds,
                       "--program", os.path.join(self.build, "tests", "campaign", "campaign_rank")]
            command += ["--fault", plant.fault] if plant.fault else []
            found[" ".join(["seeds", plant.seeds, plant.fault or ""]).strip()] = (command, SEEDS_S)
        return found

    def examine(self, plants):
        """Which of what may catch passes without any plant."""
        self.compile(sorted({target for plant in plants for target in self.targets(plant)}))
        for plant in plants:
            for name, (command, limit_s) in self.catchers(plant).items():
                if name not in self.sound:
                    self.sound[name] = not self.ends_badly(command, limit_s)
                    if not self.sound[name]:
                        print(f"{name} fails without a plant: it catches nothing", flush=True)

    def catcher(self, plant):
        """What catches it, or nothing."""
        return next((name for name, (command, limit_s) in self.catchers(plant).items()
                     if self.sound[name] and self.ends_badly(command, limit_s)), None)

    @staticmethod
    def ends_badly(command, timeout):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return process.wait(timeout=timeout) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            if process.poll() is None:
                process.terminate()  # the campaign ends its ranks itself
                process.wait()


def verdict_of(tree, plant):
    """(is it caught, in words)."""
    applied = tree.apply(plant)
    if applied.returncode != 0:
        return None, f"does not apply: {applied.stderr.strip().splitlines()[0]}"
    try:
        built = tree.compile(tree.targets(plant))
        if built.returncode != 0:
            return None, "does not build"
        catcher = tree.catcher(plant)
        return catcher is not None, f"caught by {catcher}" if catcher else "lives"
    finally:
        tree.apply(plant, "--reverse")


def take(commit, name):
    """The reverse of what a commit did to the library, as a plant."""
    subject = Tree.call(["git", "-C", ROOT, "log", "-1", "--format=%s", commit]).stdout
    patch = Tree.call(["git", "-C", ROOT, "diff", commit, f"{commit}~", "--", *LIBRARY]).stdout
    if not patch:
        raise SystemExit(f"{commit} does not touch {', '.join(LIBRARY)}")
    path = os.path.join(FOLDER, f"{name}.patch")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"Taken back: {subject}tests:\nseeds: 1..40\n\n{patch}")
    print(f"{path}: say in its first lines what may catch it")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?",
                        help="a build folder; the plants' own build goes into it")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--take", nargs=2, metavar=("COMMIT", "NAME"))
    arguments = parser.parse_args()
    if arguments.take:
        return take(*arguments.take)
    if not arguments.build:
        parser.error("which build folder?")
    plants = [Plant(path) for path in sorted(glob.glob(os.path.join(FOLDER, "*.patch")))
              if arguments.only in path]
    tree = Tree(arguments.build)
    tree.make()
    tree.examine(plants)
    caught, stale = 0, 0
    for plant in plants:
        start = time.monotonic()
        is_caught, words = verdict_of(tree, plant)
        caught += is_caught is True
        stale += is_caught is None
        print(f"{plant.name:40} {words} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{caught} of {len(plants)} caught")
    return 1 if stale or caught < MIN_CAUGHT * len(plants) else 0


if __name__ == "__main__":
    sys.exit(main())
