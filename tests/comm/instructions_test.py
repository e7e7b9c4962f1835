#!/usr/bin/env python3
"""Counts the instructions of small calls on a rank, by valgrind, and holds them to their limits.
The other rank runs beside it at full speed. Its messages are there, so that hardly anything is
polled: each count is the least of several windows. A busy machine can keep the other rank waiting
in every window. That only adds to a count, so a count over its limit is taken again.

usage: instructions_test.py GYRE PROGRAM ROOM
  ROOM  factor on each limit, for what compilers make of the code (1: g++ 12)
"""
import glob
import math
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
PATIENCE_S = 50
MAX_LAUNCHES = 5

# Of one call of 8 bytes, on one of two ranks of a host, without the caller's own: a loop that calls
# a function which does nothing is counted, too. A group is four calls, with a send and a receive;
# in turn are an all-reduce, a barrier and a broadcast. Of an all-reduce and a send it is what they
# may take at most; each other limit is a tenth above what g++ 12 makes of it. g++ 16 needs up to a
# fifth more than g++ 12.
LIMITS = {"all_reduce": 350, "barrier": 420, "broadcast": 330, "all_gather": 380,
          "all_to_all": 490, "send": 250, "receive": 390, "group": 1580, "in_turn": 1670}


def count(gyre, program, folder):
    """What the program printed, and the instructions of each window in order."""
    counts = os.path.join(folder, "count")
    script = os.path.join(folder, "rank.sh")
    with open(script, "w", encoding="ascii") as file:
        file.write(f"""#!/bin/sh
[ "$GYRE_RANK" = 0 ] || exec {program}
exec valgrind --tool=callgrind --quiet --toggle-collect=counted_window \\
  --dump-after=counted_window --callgrind-out-file={counts} {program}
""")
    os.chmod(script, 0o700)
    done = subprocess.run([gyre, "run", "-n", "2", "--no-prefix", script],
                          env=dict(os.environ, GYRE_TRANSPORT="shm"),
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        sys.exit(f"the job failed:\n{done.stdout}{done.stderr}")
    totals = []
    for path in sorted(glob.glob(counts + ".*"), key=lambda one: int(one.rsplit(".", 1)[1])):
        with open(path, encoding="utf-8", errors="replace") as file:
            totals += [int(line.split()[1]) for line in file if line.startswith("totals:")]
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(name, int(windows), int(calls)) for name, windows, calls in lines], totals


def least_counts(gyre, program):
    """For each kind of call: the instructions of one call, in the window that has the fewest."""
    least = {}
    with tempfile.TemporaryDirectory() as folder:
        kinds, totals = count(gyre, program, folder)
    for name, windows, calls in kinds:
        mine, totals = totals[:windows], totals[windows:]
        least[name] = min(mine) / calls
    nothing = least.pop("nothing")
    return {name: least[name] - nothing for name in least}


def main():
    gyre, program, room = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if shutil.which("valgrind") is None:
        print("skipped: it counts by valgrind, which is not installed")
        return SKIPPED
    limits = {name: limit * room for name, limit in LIMITS.items()}
    least = dict.fromkeys(limits, math.inf)
    for launch in range(1, MAX_LAUNCHES + 1):
        counts = least_counts(gyre, program)
        assert counts.keys() == limits.keys(), f"limits and kinds of calls differ: {list(counts)}"
        least = {name: min(least[name], counts[name]) for name in limits}
        over = [name for name in limits if least[name] > limits[name]]
        print(f"launch {launch}: over their limits: {', '.join(over) or 'none'}")
        if not over:
            break
    for name, limit in limits.items():
        verdict = f"more than {limit:.0f}" if name in over else "ok"
        print(f"{name:12} {least[name]:7.1f} instructions: {verdict}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
