#!/usr/bin/env python3
"""Gyre beside Open MPI and MPICH: all-reduce of floats on this host, in interleaved rounds, so that
whatever else the machine does meets all of them alike. Medians over rounds are printed as a table
and, with --record, appended to bench/results/. A ratio is Gyre's median over the peer's: below 1
Gyre is the faster one.

    bench/compare/compare.py --build build                      # 2 ranks, shm and tcp
    bench/compare/compare.py --build build --ranks 8 --record   # more ranks than cores: all yield
"""
import argparse
import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile

import limits
from peers import find_peers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Sizes up to the first number take so many iterations: enough for a p99 where they are cheap.
ITERATIONS = ((4 << 10, 4000), (256 << 10, 1000), (4 << 20, 100), (1 << 50, 20))
OVERSUBSCRIBED = ((4 << 10, 400), (256 << 10, 200), (4 << 20, 40), (1 << 50, 10))


def parse_size(text):
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(float(text[:-1] if factor > 1 else text) * factor)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--ranks", type=int, default=2, help="processes")
    parser.add_argument("--transport", nargs="+", default=["shm", "tcp"], choices=["shm", "tcp"])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program and size")
    parser.add_argument("-b", "--minbytes", type=parse_size, default="8", metavar="SIZE")
    parser.add_argument("-e", "--maxbytes", type=parse_size, default="64M", metavar="SIZE")
    parser.add_argument("-f", "--stepfactor", type=int, default=2)
    parser.add_argument("--peer", nargs="+", metavar="NAME", default=["openmpi", "mpich"],
                        help="openmpi and mpich, as far as they are built")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one run")
    parser.add_argument("--record", action="store_true", help="append to bench/results/")
    parser.add_argument("--results", help="file to append to with --record",
                        default=os.path.join(ROOT, "bench", "results", "all_reduce.jsonl"))
    return parser.parse_args()


def bands(options):
    """(least, most, iterations) for each run of sizes that share a number of iterations."""
    table = OVERSUBSCRIBED if options.ranks > (os.cpu_count() or 1) else ITERATIONS
    groups, size = [], options.minbytes
    while size <= options.maxbytes:
        count = next(count for limit, count in table if size <= limit)
        if groups and groups[-1][2] == count:
            groups[-1][1] = size
        else:
            groups.append([size, size, count])
        size *= options.stepfactor
    return groups


def run_program(command, environment, timeout):
    """Runs to the end, or for `timeout` seconds; then its process group is ended. Returns what went
    wrong, or nothing."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait(timeout)
            problem = f"exit code {code}" if code != 0 else ""
        except subprocess.TimeoutExpired:
            problem = f"not done after {timeout} s"
        if problem:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            output.seek(0)
            problem += "\n" + output.read()[-2000:]
    return problem


class Series:
    """One program's medians and p99s of each round, by (bytes, in place)."""

    def __init__(self):
        self.p50, self.p99, self.problem = {}, {}, ""

    def add(self, rows):
        for row in rows:
            key = row["bytes"], row["in_place"]
            self.p50.setdefault(key, []).append(row["p50_us"])
            self.p99.setdefault(key, []).append(row["p99_us"])

    def median(self, key):
        return statistics.median(self.p50[key])

    def tail(self, key):
        return statistics.median(self.p99[key])


def measure(programs, options, transport):
    """Runs all programs round by round; each round begins with another one."""
    series = {program.name: Series() for program in programs}
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("GYRE_", "OMPI_", "MPIR_", "UCX_"))}
    for least, most, iterations in bands(options):
        for turn in range(options.rounds):
            shift = turn % len(programs)
            for program in programs[shift:] + programs[:shift]:
                if series[program.name].problem:
                    continue
                print(f"  {transport}: {least}..{most} bytes, round {turn + 1} of "
                      f"{options.rounds}, {program.name}", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory() as folder:
                    rows_file = os.path.join(folder, "rows.json")
                    sizes = ["-b", str(least), "-e", str(most), "-f", str(options.stepfactor),
                             "-n", str(iterations), "-w", "3", "-c", "1" if turn == 0 else "0"]
                    command, extra = program.command(options.ranks, transport, sizes, rows_file)
                    problem = run_program(command, {**environment, **extra}, options.timeout)
                    if problem:
                        series[program.name].problem = f"{' '.join(command)}: {problem}"
                    else:
                        series[program.name].add(program.rows(rows_file))
    return series


def common_keys(series, names):
    return sorted(set.intersection(*(set(series[name].p50) for name in names)))


def print_table(series, limit, options, transport):
    names = [name for name in series if not series[name].problem]
    peers = [name for name in names if name != "gyre"]
    print(f"\nall-reduce of floats, {options.ranks} ranks, {transport}, out of place; "
          f"medians of {options.rounds} rounds; {limit.text()}")
    print(f"{'bytes':>10}" + "".join(f"  {name + ' p50':>12} {'p99':>10}" for name in names) +
          "".join(f"  {'gyre/' + name:>13}" for name in peers) + f"  {'limit':>10}")
    for key in common_keys(series, names):
        if key[1]:
            continue
        line = f"{key[0]:>10}"
        for name in names:
            line += f"  {series[name].median(key):>12.2f} {series[name].tail(key):>10.2f}"
        for name in peers:
            line += f"  {series['gyre'].median(key) / series[name].median(key):>13.3f}"
        print(line + f"  {limit.microseconds(key[0]):>10.2f}")


def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True,
                              timeout=60).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "include", "lib",
                  "kernels", "transports", "bench")
    return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")


def record(series, limit, options, transport):
    common = {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": commit(), "machine": machine(),
              "command": " ".join(["bench/compare/compare.py", *sys.argv[1:]])}
    with open(options.results, "a") as file:
        for name, peer in series.items():
            if name == "gyre" or peer.problem:
                continue
            own = series["gyre"]
            for key in common_keys(series, ["gyre", name]):
                file.write(json.dumps({
                    **common, "peer": name, "collective": "all_reduce", "type": "float",
                    "ranks": options.ranks, "bytes": key[0], "p50_us": round(own.median(key), 3),
                    "p99_us": round(own.tail(key), 3),
                    "ratio": round(own.median(key) / peer.median(key), 4),
                    "limit_us": round(limit.microseconds(key[0]), 3), "transport": transport,
                    "in_place": key[1], "rounds": options.rounds,
                    "peer_p50_us": round(peer.median(key), 3),
                    "peer_p99_us": round(peer.tail(key), 3)}) + "\n")


def main():
    options = arguments()
    programs, missing = find_peers(options.build, options.peer)
    for text in missing:
        print(text, file=sys.stderr)
    if not programs or programs[0].name != "gyre":
        return 2
    failed = False
    for transport in options.transport:
        limit = limits.Limits(options.ranks, transport)
        series = measure(programs, options, transport)
        for name, one in series.items():
            if one.problem:
                failed = True
                print(f"{name} left out: {one.problem}", file=sys.stderr)
        if series["gyre"].problem:
            continue
        print_table(series, limit, options, transport)
        if options.record:
            record(series, limit, options, transport)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
