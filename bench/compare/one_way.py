"""One-way sends: how bench/compare's programs for them are run, and which counts they take."""
import json
import os
import statistics
import subprocess
import sys


def counts(size):
    """(round trips, windows, sends of a window) that take some tenths of a second."""
    if size <= 4 << 10:
        return 4000, 40, 500
    return (1000, 30, 100) if size <= 256 << 10 else (60, 15, 20)


def run(words, environment, size):
    """(microseconds of half a round trip, MB/s) of a program that prints them as one_way does."""
    words = [*words, str(size), *map(str, counts(size))]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    row = json.loads(next(line[line.index("{"):] for line in done.stdout.splitlines()
                          if "half_round_trip_us" in line))
    return row["half_round_trip_us"], row["megabytes_per_s"]


def gyre(build, environment, size):
    return run([os.path.join(build, "tools", "gyre"), "run", "-n", "2",
                os.path.join(build, "bench", "compare", "one_way")],
               {**environment, "GYRE_SOCKET_IFNAME": "lo"}, size)


def in_turns(steps, rounds):
    """Calls each step once a round, in alternating order; the medians of what each returns, or of
    its columns."""
    results = [[] for _ in steps]
    for turn in range(rounds):
        order = range(len(steps)) if turn % 2 == 0 else reversed(range(len(steps)))
        for index in order:
            results[index].append(steps[index]())
    return [tuple(map(statistics.median, zip(*result))) for result in results]
