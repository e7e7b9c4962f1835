#!/usr/bin/env python3
"""Training with one rank that is twice as slow: throughput, steps and loss of synchronous training,
of bounded staleness and of local SGD. Each row is a run of bench/training/straggler; --record
appends them to bench/results/training_straggler.jsonl, --plot draws the picture (matplotlib)."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/compare"))
import picture  # noqa: E402  pylint: disable=wrong-import-position
import rounds as provenance_of  # noqa: E402  pylint: disable=wrong-import-position


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--record", action="store_true",
                        help="append to bench/results/training_straggler.jsonl")
    parser.add_argument("--plot", type=picture.file_to_draw, metavar="FILE",
                        help="a picture, as SVG")
    parser.add_argument("options", nargs="*", help="of bench/training/straggler, after --")
    return parser.parse_args()


def plot(lines, path):
    pyplot = picture.load_pyplot()
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(13, 4))
    names = [one["way"] for one in lines]
    colors = [f"C{place}" for place in range(len(lines))]
    left.bar(names, [one["steps_per_second"] for one in lines], color=colors)
    left.set(ylabel="gradients per second, all ranks")
    middle.bar(names, [one["fast_step_p50_ms"] for one in lines], color=colors,
               yerr=[[0] * len(lines),
                     [one["fast_step_p99_ms"] - one["fast_step_p50_ms"] for one in lines]])
    middle.set(ylabel="ms for a step of rank 0: median, line to p99")
    for color, one in zip(colors, lines):
        right.plot(one["loss_seconds"], one["losses"], color=color, label=one["way"])
    right.set(yscale="log", xlabel="seconds", ylabel="loss on test rows, rank 0")
    right.legend(fontsize=8)
    for axes in (left, middle):
        axes.tick_params(axis="x", labelrotation=20, labelsize=8)
    first = lines[0]
    figure.suptitle(f"{first['ranks']} ranks, of which rank {first['slow_rank']} takes "
                    f"{first['slow_factor']:g} times as long")
    figure.tight_layout()
    picture.save(figure, path)


def main():
    options = arguments()
    done = subprocess.run([f"{options.build}/bench/training/straggler", *options.options],
                          stdout=subprocess.PIPE, text=True, timeout=600, check=False,
                          env={"GYRE_SOCKET_IFNAME": "lo", **os.environ})
    if done.returncode != 0:
        sys.exit(f"straggler ended with {done.returncode}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"{'way':24} {'gradients/s':>11} {'p50 ms':>7} {'p99 ms':>7} {'staleness':>10} "
          f"{'straggler':>28} {'loss':>8}")
    for one in lines:
        print(f"{one['way']:24} {one['steps_per_second']:11.1f} {one['fast_step_p50_ms']:7.1f} "
              f"{one['fast_step_p99_ms']:7.1f} {one['staleness_most']:10} "
              f"rank {one['straggler']}: {one['straggler_ms']:5.1f} ms, others "
              f"{one['others_ms']:5.1f} {one['losses'][-1]:8.4f}")
    if options.plot:
        plot(lines, options.plot)
    if options.record:
        provenance_of.append_results("training_straggler", "bench/training/straggler.py", lines)


if __name__ == "__main__":
    main()
