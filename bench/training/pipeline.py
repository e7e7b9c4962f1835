#!/usr/bin/env python3
"""The bubble of pipeline schedules by stages and micro-batches, beside the formula (p - 1) / (m + p
- 1) and a batch that passes the stages undivided.

Each line is a row of bench/training/pipeline_bubble, whose --help explains the figures. --record
appends them to bench/results/training_pipeline.jsonl. --plot draws both pictures (matplotlib), also
from --recorded lines: on a shared machine, stages may be measured one by one, when it is quiet."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench/results/training_pipeline.jsonl"
sys.path.insert(0, str(ROOT / "bench/compare"))
import picture  # noqa: E402  pylint: disable=wrong-import-position
import rounds as provenance_of  # noqa: E402  pylint: disable=wrong-import-position


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 4, 8],
                        help="numbers of stages, p")
    parser.add_argument("--per-stage", type=int, nargs="+", default=[1, 2, 4],
                        help="micro-batches for each stage, m / p")
    parser.add_argument("--threads", action="store_true", help="stages as threads")
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "gpipe"])
    parser.add_argument("--forward-ms", type=float, default=10)
    parser.add_argument("--backward-ms", type=float, default=20)
    parser.add_argument("--bytes", type=int, default=64 << 10, help="sent from stage to stage")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--naive-rounds", type=int, default=5,
                        help="rounds that also measure the undivided batch")
    parser.add_argument("--compute", action="store_true", help="compute instead of sleeping")
    parser.add_argument("--record", action="store_true",
                        help="append to bench/results/training_pipeline.jsonl")
    parser.add_argument("--recorded", action="store_true",
                        help="measure nothing; use the newest recorded figures")
    parser.add_argument("--plot", type=picture.file_to_draw, metavar="FILE",
                        help="pictures, as SVG")
    return parser.parse_args()


def measure(options, stages):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows.json")
        command = [f"{options.build}/bench/training/pipeline_bubble", "--json", str(path),
                   "--micro-batches", *[str(stages * share) for share in options.per_stage],
                   "--schedules", *options.schedules, "--forward-ms", str(options.forward_ms),
                   "--backward-ms", str(options.backward_ms), "--bytes", str(options.bytes),
                   "--rounds", str(options.rounds), "--naive-rounds", str(options.naive_rounds)]
        command += ["--compute"] if options.compute else []
        if options.threads:
            command += ["--threads", str(stages)]
        else:
            command = [f"{options.build}/tools/gyre", "run", "-n", str(stages), *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False,
                              env={"GYRE_SOCKET_IFNAME": "lo", **os.environ})
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        rows = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        show(row)
    return rows


def recorded(options):
    """Of each number of stages and micro-batches, schedule and kind of work, the last line."""
    newest = {}
    with open(RESULTS, encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            newest[row["stages"], row["micro_batches"], row["schedule"], row["as"],
                   row["work"]] = row
    chosen = [newest[key] for key in sorted(newest)
              if key[0] in options.stages and key[2] in options.schedules and
              key[3:] == ("threads" if options.threads else "processes",
                          "compute" if options.compute else "timed")]
    for row in chosen:
        show(row)
    return chosen


def show(row):
    print(f"{row['stages']:6} {row['micro_batches']:13} {row['schedule']:>8} {row['in_flight']:9} "
          f"{row['step_ms']:9.2f} {row['ideal_ms']:9.2f} {row['bubble']:8.4f} "
          f"{row['formula']:8.4f} {row['ratio']:7.3f} {row['naive_step_ms']:9.2f} "
          f"{row['naive_bubble']:8.4f}", flush=True)


def plot(rows, path):
    pyplot = picture.load_pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(picture.WIDTH, 4.6))
    for number, stages in enumerate(sorted({row["stages"] for row in rows})):
        draw_stages(left, right, [row for row in rows if row["stages"] == stages], number)
    left.set(xscale="log", ylim=(0, 1), xlabel="micro-batches m", ylabel="bubble, of a step")
    left.set_title("lines: (p - 1) / (m + p - 1); points: measured", fontsize=10)
    right.set(xscale="log", xlabel="micro-batches m", ylabel="naive step / step")
    right.set_title("lines: m p / (m + p - 1); points: measured", fontsize=10)
    counts = sorted({1, *(row["micro_batches"] for row in rows)})
    for axes in (left, right):
        picture.plain_ticks(axes.xaxis, counts)
    over = [100 * (row["ratio"] - 1) for row in rows]
    figure.suptitle(f"Pipelines wait {min(over):.1f} to {max(over):.1f} % longer than the formula "
                    "says", fontsize=11)
    picture.legend_below(figure, left, columns=6)
    picture.save(figure, path)


def draw_stages(left, right, rows, number):
    """Rows of one number of stages; the first one names the markers."""
    stages, color = rows[0]["stages"], f"C{number}"
    counts = range(1, 1 + max(row["micro_batches"] for row in rows))
    left.plot(counts, [(stages - 1) / (m + stages - 1) for m in counts], color=color,
              label=f"{stages} stages")
    right.plot(counts, [m * stages / (m + stages - 1) for m in counts], color=color)
    for schedule, marker in (("1f1b", "o"), ("gpipe", "x")):
        chosen = [row for row in rows if row["schedule"] == schedule]
        counted = [row["micro_batches"] for row in chosen]
        name = schedule if number == 0 else None
        left.plot(counted, [row["bubble"] for row in chosen], marker, color=color, label=name)
        right.plot(counted, [row["naive_step_ms"] / row["step_ms"] for row in chosen], marker,
                   color=color)
    left.plot([row["micro_batches"] for row in rows], [row["naive_bubble"] for row in rows], "_",
              color=color, label="naive: one batch" if number == 0 else None)


def main():
    options = arguments()
    print(f"{'stages':>6} {'micro-batches':>13} {'schedule':>8} {'in flight':>9} {'step ms':>9} "
          f"{'ideal ms':>9} {'bubble':>8} {'formula':>8} {'ratio':>7} {'naive ms':>9} "
          f"{'bubble':>8}")
    if options.recorded:
        rows = recorded(options)
    else:
        rows = [row for stages in options.stages for row in measure(options, stages)]
    if options.plot:
        plot(rows, options.plot)
    if options.record and not options.recorded:
        provenance_of.append_results("training_pipeline", "bench/training/pipeline.py", rows)


if __name__ == "__main__":
    main()
