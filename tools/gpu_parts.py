"""tools/dev gpu: everything that needs a GPU, part by part, each with a time limit: builds in
build-gpu/ (release, -Dcuda=enabled), runs the suite `gpu`, the cases of several processes once more
under MPS, NVIDIA's compute-sanitizer on kernels with all ranks in one grid, since it runs kernels
one after another, and the benchmarks (bench/gpu.py). What passed is a table at the end, a page
(bench/results/gpu_parts.md) and lines in gpu_parts.jsonl there; the benchmarks write gpu.jsonl,
gpu.md and pictures. Exit code 0 if every part passed: one that was skipped, or whose program is
not there, has not. Before anything is built it says what this machine lacks; --dry-run says what
would run, anywhere."""
import argparse
import datetime
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "compare"))
sys.path.insert(0, os.path.join(ROOT, "bench", "gpu"))
import figures  # noqa: E402
import rounds  # noqa: E402

BUILD = os.path.join(ROOT, "build-gpu")
RESULTS = os.path.join(ROOT, "bench", "results")
SKIPPED = 77  # as Meson takes it
BEAT_S = 30  # between two signs of life of a part

PASSED, FAILED, LATE, SKIP, ABSENT = "passed", "failed", "too late", "skipped", "not there"


class Part:
    def __init__(self, name, seconds, command, needs=None):
        self.name, self.seconds, self.command, self.needs = name, seconds, command, needs
        self.outcome, self.took, self.why = ABSENT, 0.0, ""


def all_parts():
    gpu_test = [os.path.join(BUILD, "tests", "gpu_test"), "--rng-seed", "1"]
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    script = os.path.join(ROOT, "bench", "gpu.py")
    with_mps = [sys.executable, os.path.join(ROOT, "tools", "with_mps.py")]
    parts = [
        Part("configure", 300, ["meson", "setup", BUILD, "--buildtype=release", "-Dcuda=enabled"]
             + (["--reconfigure"] if os.path.exists(os.path.join(BUILD, "build.ninja")) else [])),
        Part("build", 3600, ["ninja", "-C", BUILD, "all", "gpu_images"]),
        Part("suite gpu", 5400, ["meson", "test", "-C", BUILD, "--no-rebuild", "--print-errorlogs",
                                 "--suite", "gpu"]),
        Part("processes under MPS", 900, [*with_mps, *gpu_test, "[processes]"])]
    for tool in ("memcheck", "racecheck", "synccheck"):
        command = [sanitizer, "--tool", tool, "--error-exitcode", "1", *gpu_test, "--short",
                   "[one_grid]"]
        parts.append(Part(tool, 900, command, sanitizer))
    parts.append(Part("benchmarks", 5400, [sys.executable, script, "--build", BUILD, "--record"],
                      script))
    return parts


def told_by(command):
    """What a program prints, or None if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def machine(nvcc):
    """(what GPU and software there is, what is missing)"""
    there, missing = {}, []
    gpus = told_by(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                    "--format=csv,noheader"])
    if shutil.which("nvidia-smi") is None:
        missing.append("nvidia-smi is not there: install NVIDIA's driver")
    elif not gpus:
        missing.append("nvidia-smi finds no GPU: see what it says itself")
    else:
        there["gpu"] = gpus.splitlines()[0]
    release = told_by([nvcc, "--version"]) if nvcc else None
    if release is None:
        missing.append("nvcc is not there: install the CUDA toolkit, or tools/dev setup --cuda")
    else:
        there["nvcc"] = release.splitlines()[-1]
    return there, missing


def wait(process, part, path):
    """Its exit code. Now and then it says how long it has run, and its last line."""
    began = time.monotonic()
    while True:
        left = part.seconds - (time.monotonic() - began)
        try:
            return process.wait(min(BEAT_S, max(left, 0.01)))
        except subprocess.TimeoutExpired:
            if time.monotonic() - began >= part.seconds:
                raise
        with open(path, encoding="utf-8", errors="replace") as log:
            last = (log.read().split("\n") or [""])[-2:]
        print(f"   {part.name}, {time.monotonic() - began:.0f} s: "
              f"{' '.join(last).strip()[-150:]}", flush=True)


def run(part, logs):
    """Runs a part to its end or its limit; then all that it has started is ended."""
    if part.needs is not None and not os.path.exists(part.needs):
        part.why = f"there is no {os.path.relpath(part.needs, ROOT)}"
        return
    path = os.path.join(logs, part.name.replace(" ", "_") + ".txt")
    began = time.monotonic()
    with open(path, "w", encoding="utf-8") as log:
        try:
            process = subprocess.Popen(part.command, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True, cwd=ROOT)
        except OSError as error:
            part.outcome, part.why = FAILED, str(error)
            return
        try:
            code = wait(process, part, path)
            part.outcome = {0: PASSED, SKIPPED: SKIP}.get(code, FAILED)
            part.why = "" if code == 0 else f"exit code {code}, see {os.path.relpath(path, ROOT)}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            part.outcome = LATE
            part.why = f"not done after {part.seconds} s, see {os.path.relpath(path, ROOT)}"
    part.took = time.monotonic() - began
    if part.outcome == PASSED and part.name == "suite gpu" and skipped_in(BUILD):
        part.outcome, part.why = SKIP, "skipped: " + ", ".join(skipped_in(BUILD))
    if part.outcome != PASSED:
        with open(path, encoding="utf-8", errors="replace") as log:
            print("".join(log.readlines()[-30:]))


def skipped_in(build):
    """Names of the tests that Meson's last run has skipped."""
    with open(os.path.join(build, "meson-logs", "testlog.json"), encoding="utf-8") as file:
        tests = [json.loads(line) for line in file if line.strip()]
    return [test["name"] for test in tests if test["result"] == "SKIP"]


def table(parts):
    lines = ["| part | outcome | seconds | |", "|---|---|---:|---|"]
    return "\n".join(lines + [f"| {part.name} | {part.outcome} | {part.took:.0f} | {part.why} |"
                              for part in parts])


def bench_table(folder, commit):
    """The lines that benchmarks have recorded at this commit on a GPU."""
    lines = ["| benchmark | type | ranks | bytes | p50 us | p99 us | ratio |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for path in sorted(glob.glob(os.path.join(folder, "gpu*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
        for row in rows:
            if row.get("commit") == commit and "p50_us" in row:
                lines.append("| " + " | ".join(str(row.get(key, "")) for key in (
                    "collective", "type", "ranks", "bytes", "p50_us", "p99_us", "ratio")) + " |")
    return "\n".join(lines) if len(lines) > 2 else "No benchmark was recorded at this commit."


def ratios_of(folder, commit):
    """Ratios to limits that the benchmarks have recorded last at this commit."""
    path, found = os.path.join(folder, "gpu.jsonl"), {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for row in (json.loads(line) for line in file if line.strip()):
                if row.get("commit") == commit and "ratios" in row:
                    found = row["ratios"]
    return found


def write_results(parts, there, folder):
    origin = {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": rounds.commit(), "machine": rounds.machine(), "command": "tools/dev gpu",
              **there}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "gpu_parts.jsonl"), "a", encoding="utf-8") as file:
        for part in parts:
            file.write(json.dumps({**origin, "part": part.name, "outcome": part.outcome,
                                   "seconds": round(part.took, 1)}) + "\n")
    page = ["# Gyre on a GPU", "", "Written by `tools/dev gpu`.", ""]
    page += [f"- {key}: {value}" for key, value in origin.items()]
    ratios = ratios_of(folder, origin["commit"])
    with open(os.path.join(folder, "gpu_ratios.svg"), "w", encoding="utf-8") as file:
        file.write(figures.ratio_picture(ratios))
    page += ["", "## Parts", "", table(parts), "", "## Ratios to limits of the same run", "",
             *figures.ratio_table(ratios), "", "![ratios](gpu_ratios.svg)", "", "## Benchmarks", "",
             bench_table(folder, origin["commit"]), ""]
    page += [f"![{name}]({name})" for name in sorted(os.listdir(folder))
             if name.startswith("gpu_all_reduce") and name.endswith(".svg")]
    with open(os.path.join(folder, "gpu_parts.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(page))


def parsed(arguments):
    names = ", ".join(part.name for part in all_parts())
    parser = argparse.ArgumentParser(prog="tools/dev gpu", description=__doc__)
    parser.add_argument("--nvcc", help=argparse.SUPPRESS)  # as tools/dev has found it
    parser.add_argument("--only", action="append", metavar="PART",
                        help=f"this part alone; may be given again. There are: {names}")
    parser.add_argument("--limit", type=int, metavar="SECONDS",
                        help="of each part, instead of its own (the build: an hour)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    return parser.parse_args(arguments)


def main(arguments):
    options = parsed(arguments)
    parts = all_parts()
    unknown = set(options.only or []) - {part.name for part in parts}
    if unknown:
        print(f"tools/dev gpu: there is no part {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    parts = [part for part in parts if options.only is None or part.name in options.only]
    if options.dry_run:
        for part in parts:
            print(f"{part.name}: {' '.join(part.command)}")
        return 0
    there, missing = machine(options.nvcc)
    if missing:
        print("tools/dev gpu needs a machine with a GPU. What is missing here:\n  "
              + "\n  ".join(missing), file=sys.stderr)
        return 1
    logs = os.path.join(BUILD, "gpu-logs")
    os.makedirs(logs, exist_ok=True)
    for number, part in enumerate(parts, 1):
        part.seconds = options.limit or part.seconds
        print(f"== {number} of {len(parts)}, {part.name} (at most {part.seconds} s): "
              f"{' '.join(part.command)}", flush=True)
        run(part, logs)
        print(f"   {part.name}: {part.outcome} after {part.took:.0f} s {part.why}", flush=True)
        if part.name in ("configure", "build") and part.outcome != PASSED:
            break
    write_results(parts, there, RESULTS)
    print(table(parts))
    print(f"written: {os.path.relpath(RESULTS, ROOT)}/gpu_parts.md")
    return 0 if all(part.outcome == PASSED for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
