"""Tests and their programs, as Meson registered them: test_programs.py BUILD NAME... prints each
test's command, whose first word is a target of ninja's in BUILD where a program of C++ runs it."""
import json
import os
import sys


def commands(build, names):
    """{name: its command}, of those that BUILD's configuration has."""
    with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as file:
        tests = {test["name"]: test["cmd"] for test in json.load(file)}
    return {name: tests[name] for name in names if name in tests}


if __name__ == "__main__":
    for command in commands(sys.argv[1], sys.argv[2:]).values():
        print(*command)
