"""Interleaved rounds: several programs (or one with several settings) measured in turn, so that
other load on the machine affects all of them alike. Also the record of a figure's origin."""
import argparse
import datetime
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Sizes up to the first number take so many iterations: enough for a p99 where they are cheap.
ITERATIONS = ((4 << 10, 4000), (256 << 10, 1000), (4 << 20, 100), (1 << 50, 20))
OVERSUBSCRIBED = ((4 << 10, 400), (256 << 10, 200), (4 << 20, 40), (1 << 50, 10))


def parse_size(text):
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(float(text[:-1] if factor > 1 else text) * factor)


def collective_of(known):
    """For argparse: the one of `known` that a text means, as gyre reads names of collectives:
    allreduce, all_reduce, all-reduce and AllReduce are one."""
    def named(text):
        def letters(name):
            return re.sub("[-_]", "", name).lower()
        for name in known:
            if letters(name) == letters(text):
                return name
        raise argparse.ArgumentTypeError(f'no collective is "{text}"; there are {", ".join(known)}')
    return named


def add_sizes(parser, least, factor):
    parser.add_argument("-b", "--minbytes", type=parse_size, default=least, metavar="SIZE")
    parser.add_argument("-e", "--maxbytes", type=parse_size, default="64M", metavar="SIZE")
    parser.add_argument("-f", "--stepfactor", type=int, default=factor)


def sizes_of(options):
    size = options.minbytes
    while size <= options.maxbytes:
        yield size
        size *= options.stepfactor


def add_arguments(parser, memory="malloc"):
    """Those of every comparison; `memory` is the default of --memory."""
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--ranks", type=int, default=2, help="processes")
    parser.add_argument("--transport", nargs="+", default=["shm", "tcp"], choices=["shm", "tcp"])
    parser.add_argument("--memory", choices=["malloc", "registered"], default=memory,
                        help="Gyre's buffers: malloc, as in an MPI program, or registered: "
                        "gyreMemAlloc, which peers of the host reach directly")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program and size")
    add_sizes(parser, "8", 2)
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one run")
    parser.add_argument("--record", action="store_true", help="append to bench/results/")


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


def ratio_interval(first, second, key, draws=4000):
    """The 95 % interval of the ratio of two programs' medians, by drawing rounds anew (the
    bootstrap): what both did in one round stays together. The same rounds give the same."""
    rounds = list(zip(first.p50[key], second.p50[key]))
    chance = random.Random(1)
    drawn = (chance.choices(rounds, k=len(rounds)) for _ in range(draws))
    ratios = sorted(statistics.median(one for one, _ in pairs) /
                    statistics.median(other for _, other in pairs) for pairs in drawn)
    return ratios[draws * 25 // 1000], ratios[draws * 975 // 1000]


def measure(programs, options, transport):
    """Runs all programs round by round; each round begins with another one."""
    series = {program.name: Series() for program in programs}
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("GYRE_", "OMPI_", "MPIR_", "UCX_"))}
    for least, most, iterations in bands(options):
        for turn in range(options.rounds):
            shift = turn % len(programs)
            for program in programs[shift:] + programs[:shift]:
                if series[program.name].problem or program.max_bytes < least:
                    continue
                print(f"  {transport}: {least}..{most} bytes, round {turn + 1} of "
                      f"{options.rounds}, {program.name}", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory() as folder:
                    rows_file = os.path.join(folder, "rows.json")
                    end = min(most, program.max_bytes)
                    sizes = ["-b", str(least), "-e", str(end), "-f", str(options.stepfactor),
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


def machine(path="/proc/cpuinfo"):
    said = {}
    with open(path) as file:
        for line in file:
            name, _, value = line.partition(":")
            said.setdefault(name.strip(), value.strip())
    model = said.get("model name") or said.get("Model") or "unknown processor"
    # Virtual machines may show the maker's name alone.
    if "cpu family" in said and not any(letter.isdigit() for letter in model):
        model += f" (family {said['cpu family']}, model {said['model']})"
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


COMMIT_OF_A_COPY = os.path.join(ROOT, "build-gpu", "commit.txt")


def commit():
    """Of this checkout; of a tree that was copied without one, what tools/dev gpu has written."""
    def git(*words):
        try:
            return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True,
                                  timeout=60).stdout.strip()
        except OSError:  # no git on this machine
            return ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "include", "lib",
                  "kernels", "transports", "bench")
    head = git("rev-parse", "--short=12", "HEAD")
    if head:
        return head + ("+changes" if changed else "")
    try:
        with open(COMMIT_OF_A_COPY, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def provenance(script):
    """Where and when a figure was measured: the beginning of a recorded line."""
    return {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": commit(), "machine": machine(),
            "command": " ".join([script, *sys.argv[1:]])}


def append_results(name, script, rows):
    """Records what was measured: each row, behind its provenance, in bench/results/NAME.jsonl."""
    common = provenance(script)
    with open(os.path.join(ROOT, "bench", "results", name + ".jsonl"), "a",
              encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({**common, **row}) + "\n")


def newest_results(name):
    """The lines of bench/results/NAME.jsonl that were recorded last, all at one time."""
    with open(os.path.join(ROOT, "bench", "results", name + ".jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row for row in rows if row["time"] == rows[-1]["time"]]
