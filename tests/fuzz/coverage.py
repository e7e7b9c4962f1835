"""Which lines of the parsers in README.md the replayed corpus reached: coverage.py BUILD. Before,
every target there has to leave its profile in BUILD/profiles. Exit code 1 if a row is below 90 %.
"""
import collections
import os
import re
import sys

import table

sys.path.insert(0, os.path.join(table.ROOT, "tools"))
import llvm_coverage

LEAST = 90.0


def line_counts(programs, profile):
    """{path: {line: how often it ran}}; a line without code is not there. Paths are as compilers
    name them, relative to their build folder or not, until they are made plain."""
    counts = collections.defaultdict(dict)
    text = llvm_coverage.export(programs, profile, "-format=lcov")
    here = None
    for line in text.splitlines():
        if line.startswith("SF:"):
            here = counts[os.path.normpath(line[3:])]
        elif line.startswith("DA:"):
            number, count = line[3:].split(",")[:2]
            here[int(number)] = max(int(count), here.get(int(number), 0))
    return counts


def function_ranges(programs, profile):
    """{path: [(name, first line, last line)]}, names as in the source."""
    functions = llvm_coverage.functions(programs, profile)
    mangled = "\n".join(function["name"].split(":")[-1] for function in functions)
    names = llvm_coverage.tool("llvm-cxxfilt")(text=mangled).splitlines()
    ranges = collections.defaultdict(list)
    for function, name in zip(functions, names):
        first, _, last, _ = function["regions"][0][:4]
        ranges[os.path.normpath(function["filenames"][0])].append((name, first, last))
    return ranges


def lines_of(parser, ranges):
    """The lines of a row's functions; None: of the whole file."""
    if not parser.functions:
        return None
    wanted = re.compile(r"(?:^|[\s:])(?:" + "|".join(map(re.escape, parser.functions)) +
                        r")(?:\[abi:\w+\])?(?:<[^(]*>)?\(")
    return {line for name, first, last in ranges if wanted.search(name)
            for line in range(first, last + 1)}


def main(build):
    profile = llvm_coverage.merge_profiles(build)
    programs = [f"{build}/tests/fuzz/fuzz_replay"]
    parsers = table.parsers()
    counts = line_counts(programs, profile)
    ranges = function_ranges(programs, profile)
    low = 0
    print(f"{'parser':<40} {'lines':>6} {'reached':>8} {'%':>6}")
    for parser in parsers:
        path = os.path.join(table.ROOT, parser.path)
        chosen = lines_of(parser, ranges[path])
        lines = {line: count for line, count in counts[path].items()
                 if chosen is None or line in chosen}
        reached = sum(count > 0 for count in lines.values())
        percent = 100.0 * reached / len(lines) if lines else 0.0
        missed = [line for line, count in sorted(lines.items()) if count == 0]
        low += percent < LEAST
        print(f"{parser.path:<40} {len(lines):>6} {reached:>8} {percent:>6.1f}"
              f"{'' if percent >= LEAST else '  LOW'}  {' '.join(map(str, missed[:30]))}")
    print(f"{low} of {len(parsers)} rows below {LEAST:.0f} %")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
