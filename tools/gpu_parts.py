"""tools/dev gpu: everything that needs a GPU, in parts of at most nine minutes each, in the order
that a first run should take (gpu_pieces.py). It builds in build-gpu/ (release, -Dcuda=enabled) and
runs kernels alone, communicators, processes, the same under MPS, and the benchmarks (bench/gpu.py).
NVIDIA's compute-sanitizer gets kernels of all ranks in one grid, because it runs separate kernels
one after another. Parts that passed with this library are not repeated (--again repeats them), so a
run that was cut off can be started again. --time ends a run after that time. The results are a
table at the end, a page (bench/results/gpu_parts.md) that explains each failure, and lines in
gpu_parts.jsonl there. Exit code: 0 if every part passed; a part that was skipped or has no program
has not passed. Before building, the script names what this machine lacks. --list and --dry-run show
what would run, on any machine.

A machine without a GPU can build for one that has no compiler: --pack FOLDER. With that folder as
build-gpu/ in a checkout there:

  LD_LIBRARY_PATH=$PWD/build-gpu/needed tools/dev gpu --built"""
import argparse
import datetime
import glob
import hashlib
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
sys.path.insert(0, os.path.join(ROOT, "tools"))
import figures  # noqa: E402
import gpu_pack  # noqa: E402
import rounds  # noqa: E402
from gpu_pieces import (ABSENT, BUILD, FAILED, LATE, NOT_YET, PASSED, SKIP, Part,  # noqa: E402
                        all_parts, build_parts)

RESULTS = os.path.join(ROOT, "bench", "results")
SKIPPED = 77  # as Meson takes it
STATE = "gpu_parts.json"
BEAT_S = 30  # between two signs of life of a part
MIN_SECONDS = 20  # that a part is begun for

def told_by(command):
    """What a program prints, or None if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def machine(nvcc, built=False):
    """(what GPU and software there is, what is missing); a built tree needs no compiler."""
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
    if built:
        if not os.path.exists(library()):
            missing.append(f"{os.path.relpath(library(), ROOT)} is not there: build the tree "
                           "with tools/dev gpu --pack, and copy that folder")
    elif release is None:
        missing.append("nvcc is not there: install the CUDA toolkit, or tools/dev setup --cuda")
    else:
        there["nvcc"] = release.splitlines()[-1]
    return there, missing


def library():
    return os.path.join(BUILD, "lib", "api", "libgyre.so")


def library_key():
    """What tells one build from another, here and on the machine that it was copied to."""
    try:
        with open(library(), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    except OSError:
        return ""


def passed_before(folder):
    """{part: seconds} of those that this library has passed."""
    path = os.path.join(folder, STATE)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        state = json.load(file)
    return state["passed"] if state["library"] == library_key() else {}


def keep_passed(folder, passed):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, STATE)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump({"library": library_key(), "passed": passed}, file)
    os.replace(path + ".new", path)


def keep_commit():
    """For the lines that benchmarks record where the built tree is copied to."""
    commit = rounds.commit()
    with open(rounds.COMMIT_OF_A_COPY, "w", encoding="utf-8") as file:
        file.write(commit + "\n")


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
    if part.outcome != PASSED:
        with open(path, encoding="utf-8", errors="replace") as log:
            print("".join(log.readlines()[-30:]))
        print(f"   what that means: {part.means}", flush=True)


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
    """Ratios to limits that the benchmarks have recorded at this commit, the last of each."""
    path, found = os.path.join(folder, "gpu.jsonl"), {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for row in (json.loads(line) for line in file if line.strip()):
                if row.get("commit") == commit and "ratios" in row:
                    found.update(row["ratios"])
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
    failed = [part for part in parts if part.outcome in (FAILED, LATE)]
    page += ["", "## Parts", "", table(parts), ""]
    page += [f"- {part.name} {part.outcome}: {part.means}." for part in failed]
    page += ["", "## Ratios to limits of the same run", "",
             *figures.ratio_table(ratios), "", "![ratios](gpu_ratios.svg)", "", "## Benchmarks", "",
             bench_table(folder, origin["commit"]), ""]
    page += [f"![{name}]({name})" for name in sorted(os.listdir(folder))
             if name.startswith("gpu_all_reduce") and name.endswith(".svg")]
    with open(os.path.join(folder, "gpu_parts.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(page))


def parsed(arguments):
    names = ", ".join(part.name for part in all_parts())
    parser = argparse.ArgumentParser(prog="tools/dev gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", help=argparse.SUPPRESS)  # as tools/dev has found it
    parser.add_argument("--built", action="store_true",
                        help="the tree was built elsewhere, and copied here: no part builds")
    parser.add_argument("--pack", metavar="FOLDER", type=os.path.abspath,
                        help="build here, without a GPU too, and put what --built needs into this "
                             "new folder")
    parser.add_argument("--only", action="append", metavar="PART",
                        help="this part alone, also if it has passed; may be given again. There "
                             f"are: {names}")
    parser.add_argument("--again", action="store_true", help="what has passed, too")
    parser.add_argument("--time", type=int, metavar="SECONDS",
                        help="end by then; what has not run is left to the next call")
    parser.add_argument("--limit", type=int, metavar="SECONDS",
                        help="of each part, instead of its own (the build: an hour)")
    parser.add_argument("--list", action="store_true",
                        help="print the parts in order, with what a failure means, and stop")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    return parser.parse_args(arguments)


def chosen(options):
    """The parts, or None if one is unknown."""
    parts = all_parts(options.built)
    unknown = set(options.only or []) - {part.name for part in parts}
    if unknown:
        print(f"tools/dev gpu: there is no part {', '.join(sorted(unknown))}", file=sys.stderr)
        return None
    return [part for part in parts if options.only is None or part.name in options.only]


def run_parts(parts, options, state, logs):
    """One after another, as far as the time goes. Each that passes is kept at once."""
    began = time.monotonic()
    for number, part in enumerate(parts, 1):
        is_build = part.name in ("configure", "build")
        passed = {} if options.again or options.only else passed_before(state)
        if part.name in passed and not is_build:
            part.outcome, part.took, part.why = PASSED, passed[part.name], "before"
            continue
        full = options.limit or part.seconds
        left = options.time - (time.monotonic() - began) if options.time else full
        if left < MIN_SECONDS:
            part.outcome, part.why = NOT_YET, "no time was left"
            continue
        part.seconds = int(min(full, left))
        print(f"== {number} of {len(parts)}, {part.name} (at most {part.seconds} s): "
              f"{' '.join(part.command)}", flush=True)
        run(part, logs)
        if part.outcome == LATE and part.seconds < full:
            part.outcome = NOT_YET
        print(f"   {part.name}: {part.outcome} after {part.took:.0f} s {part.why}", flush=True)
        if is_build and part.outcome != PASSED:
            break
        if part.name == "build":
            keep_commit()
        if part.outcome == PASSED and not is_build:
            keep_passed(state, {**passed_before(state), part.name: round(part.took, 1)})


def build_and_pack(options):
    problem = ""
    if options.nvcc is None:
        problem = "nvcc is not there: install the CUDA toolkit, or tools/dev setup --cuda"
    elif os.path.exists(options.pack) and os.listdir(options.pack):
        problem = f"{options.pack} is not empty"
    if problem:
        print(f"tools/dev gpu --pack: {problem}", file=sys.stderr)
        return 1
    logs = os.path.join(BUILD, "gpu-logs")
    os.makedirs(logs, exist_ok=True)
    parts = build_parts()
    run_parts(parts, options, logs, logs)
    if any(part.outcome != PASSED for part in parts):
        return 1
    print(f"{options.pack}: {gpu_pack.pack(options.pack) / 1e6:.0f} MB; it goes to a checkout on "
          "a machine with a GPU, as build-gpu/")
    return 0


def main(arguments):
    options = parsed(arguments)
    parts = chosen(options)
    if parts is None:
        return 2
    if options.list or options.dry_run:
        for number, part in enumerate(parts, 1):
            print(f"{number:2d} {part.name}: {part.means}" if options.list
                  else f"{part.name}: {' '.join(part.command)}")
        return 0
    if options.pack:
        return build_and_pack(options)
    there, missing = machine(options.nvcc, options.built)
    if missing:
        print("tools/dev gpu needs a machine with a GPU. What is missing here:\n  "
              + "\n  ".join(missing), file=sys.stderr)
        return 1
    logs = os.path.join(BUILD, "gpu-logs")
    os.makedirs(logs, exist_ok=True)
    run_parts(parts, options, logs, logs)
    write_results(parts, there, RESULTS)
    print(table(parts))
    print(f"written: {os.path.relpath(RESULTS, ROOT)}/gpu_parts.md")
    if any(part.outcome == NOT_YET for part in parts):
        print("the same command goes on with what has not run yet")
    return 0 if all(part.outcome == PASSED for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
