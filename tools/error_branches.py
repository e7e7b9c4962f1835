"""Which error branches of a subject its tests reached: error_branches.py BUILD SUBJECT. Before,
each test of the subject has to leave a profile in BUILD/profiles. The exit code is 1 if one was not
reached.
error_branches.py --tests SUBJECT: the names of these tests. --subjects: the names of subjects.

An error branch is a place where a failure is made: a Status, nothing in the place of a value, or
the text of a fault. Places that pass one on (GYRE_TRY and GYRE_ASSIGN) are counted beside them, and
may be out of reach, as where getrandom fails: the exit code is not about them."""
import collections
import glob
import os
import re
import sys

import llvm_coverage
import test_programs

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

#: Patterns of paths: of sources, and of tests.
Subject = collections.namedtuple("Subject", "sources tests")
SUBJECTS = {
    "rdma": Subject(("transports/rdma/*.cc", "lib/loaded/*verbs*.cc"),
                    ("tests/*/rdma_*test.cc", "tests/loaded/verbs_test.cc",
                     "tests/device/relay_gpu_memory_test.cc")),
}

MADE = re.compile(r"\bStatus\(Code::|\bStatus::from_errno\(|\b(?:invalid_\w+|internal_error|"
                  r"failure_on_the_way|link_failure)\(|\breturn (?:std::nullopt\b|refuse\()|"
                  r"\breturn fmt::format\(")
PASSED_ON = re.compile(r"\bGYRE_(?:TRY|ASSIGN)\(")

#: Of llvm-cov's export: a region's kinds, and the places of what it says.
CODE, EXPANSION = 0, 1
FIRST_LINE, FIRST_COLUMN, LAST_LINE, LAST_COLUMN, COUNT, FILE, EXPANDED, KIND = range(8)


def places_in(text, pattern):
    """(line, column) of each match outside of comments, from 1."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0]
        found += [(number, match.start() + 1) for match in pattern.finditer(code)]
    return found


class Counts:
    """How often each region of the files ran, by what the programs' profiles say."""

    def __init__(self, functions):
        self.regions = collections.defaultdict(dict)     # path: {(first, last): count}
        self.expansions = collections.defaultdict(dict)  # path: {first: [(path, first, count)]}
        for function in functions:
            names = [os.path.normpath(name) for name in function["filenames"]]
            by_file = collections.defaultdict(list)
            for region in function["regions"]:
                by_file[region[FILE]].append(region)
            for region in function["regions"]:
                first = (region[FIRST_LINE], region[FIRST_COLUMN])
                if region[KIND] == CODE:
                    last = (region[LAST_LINE], region[LAST_COLUMN])
                    known = self.regions[names[region[FILE]]]
                    known[first, last] = max(region[COUNT], known.get((first, last), 0))
                elif region[KIND] == EXPANSION:
                    known = self.expansions[names[region[FILE]]].setdefault(first, [])
                    known += [(names[inner[FILE]], (inner[FIRST_LINE], inner[FIRST_COLUMN]),
                               inner[COUNT]) for inner in by_file[region[EXPANDED]]
                              if inner[KIND] == CODE]

    def at(self, path, place):
        """Of the innermost region with that place; None: there is no code."""
        around = [(first, count) for (first, last), count in self.regions[path].items()
                  if first <= place < last]
        return max(around)[1] if around else None

    def returned(self, path, place, lines_of):
        """How often the macro that is used at that place returned; None: it is not compiled."""
        inside = self.expansions[path].get(place)
        if inside is None:
            return None
        return max((count for file, (line, column), count in inside
                    if lines_of(file)[line - 1][column - 1:].startswith("return")), default=0)


def places_of(counts, path, lines_of):
    """By kind, [(line, how often it was reached)] of what is compiled."""
    text = "\n".join(lines_of(path))
    made = [(place[0], counts.at(path, place)) for place in places_in(text, MADE)]
    passed_on = [(place[0], counts.returned(path, place, lines_of))
                 for place in places_in(text, PASSED_ON)]
    return [[(line, count) for line, count in found if count is not None]
            for found in (made, passed_on)]


def missed(found):
    return [line for line, count in found if count == 0]


def report(counts, paths, out=print):
    """Prints a line for each file, and how many places of each kind were reached. How many branches
    were not, is what it returns."""
    texts = {}

    def lines_of(path):
        if path not in texts:
            with open(path, encoding="utf-8") as file:
                texts[path] = file.read().splitlines()
        return texts[path]

    all_found = [[], []]
    out(f"{'failures':<40} {'made':>9} {'passed on':>11}   lines that were not reached")
    for path in paths:
        shown = os.path.relpath(path, ROOT)
        if path not in counts.regions:
            out(f"{shown:<40} not in this build")
            continue
        found = places_of(counts, path, lines_of)
        figures = [f"{len(row) - len(missed(row))} of {len(row)}" for row in found]
        lines = [*map(str, missed(found[0])), *(f"({line})" for line in missed(found[1]))]
        out(f"{shown:<40} {figures[0]:>9} {figures[1]:>11}   {' '.join(lines)}".rstrip())
        for whole, row in zip(all_found, found):
            whole += row
    for kind, row in zip(("made", "passed on"), all_found):
        reached = len(row) - len(missed(row))
        percent = 100.0 * reached / len(row) if row else 100.0
        out(f"{kind}: {reached} of {len(row)}, {percent:.1f} %")
    return len(missed(all_found[0]))


def files_of(patterns):
    return sorted(path for pattern in patterns for path in glob.glob(os.path.join(ROOT, pattern)))


def names_of_tests(subject):
    return [os.path.basename(path)[:-len(".cc")] for path in files_of(subject.tests)]


def main(words):
    if words == ["--subjects"]:
        print(*SUBJECTS, sep="\n")
        return 0
    if len(words) != 2 or words[1] not in SUBJECTS:
        sys.exit("usage: error_branches.py --subjects | --tests SUBJECT | BUILD SUBJECT")
    subject = SUBJECTS[words[1]]
    if words[0] == "--tests":
        print(*names_of_tests(subject))
        return 0
    commands = test_programs.commands(words[0], names_of_tests(subject))
    programs = sorted({os.path.join(words[0], first) for first, *_ in commands.values()})
    functions = llvm_coverage.functions(programs, llvm_coverage.merge_profiles(words[0]))
    return 1 if report(Counts(functions), files_of(subject.sources)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
