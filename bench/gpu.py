#!/usr/bin/env python3
"""Measures Gyre on one GPU, against limits of the same run: the kernels' moves; all-reduce of 2, 4
and 8 ranks as threads, and of 2 and 4 as processes, that share the GPU; graphs; and NCCL >= 2.30
where it is found. Prints the ratios; --record appends lines to bench/results/gpu.jsonl and writes
gpu.md beside it.

    ninja -C build bench/all_reduce_perf bench/gpu/gpu_moves gpu_images tools/gyre
    ninja -C build bench/compare/nccl_all_reduce                # where there is NCCL
    bench/gpu.py --build build --record

Exit codes: 0 every measured ratio holds; 1 one does not; 2 there is no GPU, or something is not
built; 3 a program failed."""
import argparse
import ctypes
import datetime
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "gpu"))
sys.path.insert(0, os.path.join(ROOT, "bench", "compare"))
import figures  # noqa: E402
import rounds  # noqa: E402

WITH_MPS = os.path.join(ROOT, "tools", "with_mps.py")
PIECES = ("moves", "threads", "processes", "mps", "limits", "nccl")
NCCL_SHARES_FROM = 23000  # the first version that lets ranks share a GPU


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("-b", "--minbytes", default="8", help="smallest size (8)")
    parser.add_argument("-e", "--maxbytes", default="1G", help="largest size (1G)")
    parser.add_argument("-f", "--stepfactor", type=int, default=8, help="factor between sizes (8)")
    parser.add_argument("-n", "--iters", type=int, default=20, help="timed iterations (20)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of gpu_moves (7)")
    parser.add_argument("--mebibytes", type=int, default=1024,
                        help="size of gpu_moves' buffers (1024)")
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 4, 8], metavar="N",
                        help="ranks as threads (2 4 8)")
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4], metavar="N",
                        help="ranks as processes (2 4)")
    parser.add_argument("--nccl", metavar="PROGRAM",
                        help="NCCL's program (default: the build's bench/compare/nccl_all_reduce)")
    parser.add_argument("--limit", type=int, default=600, metavar="SECONDS",
                        help="time limit of each program (600)")
    parser.add_argument("--only", action="append", choices=PIECES, metavar="PIECE",
                        help="this part alone, with the recorded lines of the others at this "
                             f"commit; repeatable. Parts: {', '.join(PIECES)}")
    parser.add_argument("--record", action="store_true", help="write the results")
    parser.add_argument("--results", default=os.path.join(ROOT, "bench", "results"),
                        help="folder to write into (bench/results)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    return parser.parse_args()


class Failed(Exception):
    """A program that failed, ran too long, or is not there."""


class Programs:
    """The commands, and what they print."""

    def __init__(self, options, folder):
        self.options, self.folder, self.files = options, folder, 0
        self.moves = os.path.join(options.build, "bench", "gpu", "gpu_moves")
        self.perf = os.path.join(options.build, "bench", "all_reduce_perf")
        self.gyre = os.path.join(options.build, "tools", "gyre")
        self.nccl = options.nccl or os.path.join(options.build, "bench", "compare",
                                                 "nccl_all_reduce")

    def missing(self):
        needed = [self.moves, self.perf, self.gyre]
        needed += [os.path.join(os.path.dirname(self.moves), name + ".fatbin")
                   for name in ("moves", "ring_interpreted", "ring_straight")]
        return [path for path in needed if not os.path.exists(path)]

    def run(self, command, environment=None):
        """Its standard output; None in a dry run."""
        shown = " ".join([*(f"{k}={v}" for k, v in (environment or {}).items()), *command])
        print(("" if self.options.dry_run else "# ") + shown, flush=True)
        if self.options.dry_run:
            return None
        # One GPU, whatever the machine has: the ranks share it.
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        variables = {**os.environ, "CUDA_VISIBLE_DEVICES": first, **(environment or {})}
        # The one communicator of each run may have all of it.
        variables.setdefault("GYRE_MIN_CTAS", "16")
        with tempfile.TemporaryFile("w+") as output:
            problem = run_whole(command, variables, self.options.limit, output)
            output.seek(0)
            text = output.read()
        if problem:
            raise Failed(f"{shown}: {problem}\n{text.strip()[-2000:]}")
        return text

    def all_reduce(self, launcher, ranks, words, environment=None):
        """{bytes: microseconds out of place}, checked; None in a dry run."""
        self.files += 1
        rows = os.path.join(self.folder, f"rows_{self.files}.json")
        command = [*launcher, self.perf, "--device", "cuda", *ranks, *words, "-J", rows]
        if self.run(command, environment) is None:
            return None
        with open(rows, encoding="utf-8") as file:
            document = json.load(file)
        return {row["size"]: row["out_of_place"]["time"] for row in document["results"]}

    def sizes(self):
        o = self.options
        return ["-b", o.minbytes, "-e", o.maxbytes, "-f", str(o.stepfactor), "-n", str(o.iters)]

    def threads(self, count):
        return self.all_reduce([], ["-t", str(count)], self.sizes())

    def processes(self, count):
        return self.all_reduce([self.gyre, "run", "-n", str(count)], [], self.sizes())

    def processes_by_mps(self, count):
        return self.all_reduce([sys.executable, WITH_MPS, self.gyre, "run", "-n", str(count)], [],
                               self.sizes())

    def graph(self, count, operations):
        launches = str(max(1, 4000 // operations))
        times = self.all_reduce([], ["-t", str(count)],
                                ["-b", "8", "-e", "8", "-n", str(operations), "-G", launches])
        return times[8] if times else None

    def at_the_floor(self, count):
        """1 GiB: its time, and the algorithm and protocol that were chosen."""
        log = os.path.join(self.folder, f"choice_{count}.log")
        times = self.all_reduce([], ["-t", str(count)],
                                ["-b", "1G", "-e", "1G", "-n", str(self.options.iters), "-c", "0"],
                                {"GYRE_DEBUG": "INFO", "GYRE_DEBUG_SUBSYS": "TUNING",
                                 "GYRE_DEBUG_FILE": log})
        if times is None:
            return None
        with open(log, encoding="utf-8") as file:
            return times[1 << 30], choice_in(file.read())


def run_whole(command, variables, limit, output):
    """Runs to the end, or for `limit` seconds; then its process group is ended. What went wrong."""
    try:
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, start_new_session=True)
    except OSError as error:
        return str(error)
    try:
        code = process.wait(limit)
        return f"exit code {code}" if code != 0 else ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"not done after {limit} s"


def choice_in(log):
    """(algorithm, protocol) of the largest all-reduce that the log tells of."""
    found = re.findall(r"choose (\S+) with (\S+) for all_reduce of (\d+) bytes", log)
    if not found:
        return None
    algorithm, protocol, _ = max(found, key=lambda entry: int(entry[2]))
    return algorithm, protocol


def why_no_gpu():
    """Empty if there is one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no GPU to measure: {error}"
    count = ctypes.c_int(0)
    begun = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    if not begun or count.value < 1:
        return "no GPU to measure: libcuda.so.1 finds no device"
    return ""


def gpu_name():
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "an unnamed GPU"
    return done.stdout.splitlines()[0].strip() if done.stdout else "an unnamed GPU"


def note_failure(notes, what, failure):
    """Other measurements go on; the exit code tells of it."""
    notes.append(f"FAILED: {what}: {str(failure).splitlines()[-1]}")
    print(failure, file=sys.stderr)


def measure_moves(programs, ratios, notes):
    try:
        text = programs.run([programs.moves, "--rounds", str(programs.options.rounds),
                             "--mebibytes", str(programs.options.mebibytes)])
    except Failed as failure:
        note_failure(notes, "gpu_moves", failure)
        text = ""
    lines = [json.loads(line) for line in (text or "").splitlines() if line.startswith("{")]
    found = figures.by_measure(lines)
    ratios.update(figures.move_ratios(found))
    return lines, found


def measure_tables(programs, pieces, rows, notes):
    kinds = []
    if "threads" in pieces:
        kinds.append(("threads", programs.threads, programs.options.threads))
    if "processes" in pieces:
        kinds.append(("processes", programs.processes, programs.options.processes))
    if "mps" in pieces and (shutil.which("nvidia-cuda-mps-control") or programs.options.dry_run):
        kinds.append(("processes by MPS", programs.processes_by_mps, programs.options.processes))
    elif "mps" in pieces:
        notes.append("Processes under MPS were not measured: no nvidia-cuda-mps-control here.")
    for kind, measured, counts in kinds:
        for count in counts:
            try:
                times = measured(count)
            except Failed as failure:
                note_failure(notes, f"{count} {kind}", failure)
                continue
            if times:
                rows[kind, count] = times
    if ("processes", 2) in rows:
        notes.append("Processes without MPS take turns on the GPU; their times include that.")


def measure_limits(programs, found, ratios, notes):
    bandwidth = figures.memory_bandwidth(found)
    if not found and not programs.options.dry_run:
        notes.append("FAILED: the limits need the moves of the same commit: --only moves first.")
    for count in (2, 4):
        try:
            at_floor = programs.at_the_floor(count)
        except Failed as failure:
            note_failure(notes, f"1 GiB, {count} ranks", failure)
            continue
        if at_floor is None:
            continue
        time_us, choice = at_floor
        fraction = figures.floor_fraction(count, 1 << 30, time_us, choice, bandwidth)
        notes.append(f"1 GiB, {count} ranks: {time_us:.1f} us by {' with '.join(choice or ['?'])}; "
                     f"the memory's best in this run was {bandwidth / 1e9:.0f} GB/s.")
        if fraction is not None:
            ratios[f"floor_{count}"] = fraction
    for operations in (1, 20):
        try:
            time_us = programs.graph(2, operations)
        except Failed as failure:
            note_failure(notes, f"graph of {operations}", failure)
            continue
        empty = found.get((f"empty_graph_of_{operations}", 0))
        if time_us is None or empty is None:
            continue
        ratio = time_us / empty["median_us"]
        notes.append(f"8 B all-reduce of 2 ranks, {operations} in a graph: {time_us:.2f} us each; "
                     f"an empty kernel {empty['median_us']:.2f} us.")
        if operations == 1:
            ratios["graph_8B"] = ratio


def nccl_place():
    """Where its wheel lies in a tree that was built elsewhere; see tools/dev setup --nccl."""
    found = glob.glob(os.path.join(ROOT, ".venv-cuda", "lib", "python3*", "site-packages", "nvidia",
                                   "nccl", "lib"))
    return {"LD_LIBRARY_PATH": found[0]} if found else {}


def measure_nccl(programs, rows, own_rows, ratios, notes):
    """NCCL beside Gyre's threads, where it lets ranks share a GPU."""
    if not os.path.exists(programs.nccl) and not programs.options.dry_run:
        return notes.append("NCCL was not compared: bench/compare/nccl_all_reduce is not built (it "
                            "needs nvcc, and NCCL: tools/dev setup --nccl).")
    try:
        version = programs.run([programs.nccl, "--version"], nccl_place())
    except Failed as failure:
        return note_failure(notes, "NCCL", failure)
    if version is not None and int(version) < NCCL_SHARES_FROM:
        return notes.append(f"NCCL was not compared: version {int(version)} lets no ranks share a "
                            f"GPU ({NCCL_SHARES_FROM} does).")
    slower = []
    for count in (2, 4):
        try:
            text = programs.run([programs.nccl, "-t", str(count), *programs.sizes()],
                                {**nccl_place(), "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                                 "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
        except Failed as failure:  # it says itself that too many ranks hang
            note_failure(notes, f"NCCL, {count} ranks", failure)
            continue
        if text is None:
            continue
        times = {line["bytes"]: line["us"] for line in map(json.loads, text.splitlines())}
        rows["threads by NCCL", count] = times
        own = own_rows.get(("threads", count), {})
        slower += [own[size] / times[size] for size in own if size in times]
    if slower:
        ratios["nccl"] = max(slower)
    return None


def provenance():
    return {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": rounds.commit(), "machine": f"{gpu_name()}; {rounds.machine()}",
            "command": " ".join(["bench/gpu.py", *sys.argv[1:]])}


def draw(rows, ratios, folder):
    """Pictures: of the ratios, and of the tables where there is matplotlib."""
    with open(os.path.join(folder, "gpu_ratios.svg"), "w", encoding="utf-8") as file:
        file.write(figures.ratio_picture(ratios))
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return ["gpu_ratios.svg"]
    figure, axes = pyplot.subplots()
    for (kind, ranks), times in rows.items():
        axes.loglog(list(times), list(times.values()), marker="o", label=f"{ranks} {kind}")
    axes.set_xlabel("bytes")
    axes.set_ylabel("microseconds")
    axes.legend()
    figure.savefig(os.path.join(folder, "gpu_all_reduce.svg"))
    return ["gpu_ratios.svg", "gpu_all_reduce.svg"]


def recorded(options):
    """What pieces have recorded at this commit: (lines of moves, rows)."""
    path, lines, rows = os.path.join(options.results, "gpu.jsonl"), [], {}
    if not os.path.exists(path):
        return lines, rows
    with open(path, encoding="utf-8") as file:
        found = [json.loads(line) for line in file if line.strip()]
    for line in found:
        if line.get("commit") != rounds.commit():
            continue
        if "measure" in line:
            lines.append(line)
        elif "ranks_are" in line:
            rows.setdefault((line["ranks_are"], line["ranks"]), {})[line["bytes"]] = line["us"]
    return lines, rows


def record(options, common, lines, rows, ratios, text):
    with open(os.path.join(options.results, "gpu.jsonl"), "a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps({**common, **line}) + "\n")
        for (kind, ranks), times in rows.items():
            for size, time_us in times.items():
                file.write(json.dumps({**common, "collective": "all_reduce", "ranks": ranks,
                                       "ranks_are": kind, "bytes": size, "us": time_us}) + "\n")
        file.write(json.dumps({**common, "ratios": ratios}) + "\n")
    name = "gpu.md" if options.only is None else f"gpu_{'_'.join(options.only)}.md"
    with open(os.path.join(options.results, name), "w", encoding="utf-8") as file:
        file.write(text)


def measure(options, folder):
    programs = Programs(options, folder)
    pieces = options.only or PIECES
    ratios, notes, lines = {}, [], []
    before, known = recorded(options) if options.only else ([], {})
    found, rows = figures.by_measure(before), {}
    if "moves" in pieces:
        lines, found = measure_moves(programs, ratios, notes)
    measure_tables(programs, pieces, rows, notes)
    if "limits" in pieces:
        measure_limits(programs, found, ratios, notes)
    if "nccl" in pieces:
        measure_nccl(programs, rows, {**known, **rows}, ratios, notes)
    if options.dry_run:
        return 0
    common = provenance()
    pictures = draw(rows, ratios, options.results) if options.record else []
    text = figures.page(common, ratios, rows, notes, pictures)
    print(text)
    if options.record:
        record(options, common, lines, rows, ratios, text)
    missed = [name for name in ratios if name in figures.GATES
              and not figures.verdict(name, ratios[name])]
    if any(note.startswith("FAILED") for note in notes):
        return 3
    return 1 if missed else 0


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        if not options.dry_run:
            problem = why_no_gpu()
            missing = Programs(options, folder).missing()
            if not problem and missing:
                problem = f"not built: {' '.join(missing)} (see --help)"
            if problem:
                print(f"gpu.py: {problem}", file=sys.stderr)
                return 2
        try:
            return measure(options, folder)
        except Failed as failure:
            print(f"gpu.py: {failure}", file=sys.stderr)
            return 3


if __name__ == "__main__":
    sys.exit(main())
