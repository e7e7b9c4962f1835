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
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--record", action="store_true",
                        help="append to bench/results/training_straggler.jsonl")
    parser.add_argument("--recorded", action="store_true",
                        help="measure nothing; use the newest recorded figures")
    parser.add_argument("--plot", type=picture.file_to_draw, metavar="FILE",
                        help="a picture, as SVG")
    parser.add_argument("options", nargs="*", help="options for bench/training/straggler, after --")
    return parser.parse_args()


def plot(lines, path):
    pyplot = picture.load_pyplot()
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(picture.WIDTH, 3.9),
                                                    layout="constrained")
    places = range(len(lines))
    colors = [f"C{place}" for place in places]
    bars = left.barh(places, [one["steps_per_second"] for one in lines], color=colors)
    left.bar_label(bars, fmt="%.0f", label_type="center", color="white")
    left.set_xlabel("gradients a second, all ranks")
    medians = [one["fast_step_p50_ms"] for one in lines]
    tails = [one["fast_step_p99_ms"] - one["fast_step_p50_ms"] for one in lines]
    middle.barh(places, medians, color=colors, xerr=[[0] * len(lines), tails])
    middle.set_xlabel("ms for a step of rank 0\n(line: to p99)")
    for axes, names in ((left, [one["way"].replace(" <= ", " ≤ ") for one in lines]),
                        (middle, [""] * len(lines))):
        axes.set_yticks(list(places), names)
        axes.invert_yaxis()
    for color, one in zip(colors, lines):
        right.plot(one["loss_seconds"], one["losses"], color=color)
    right.set(yscale="log", xlabel="seconds (colours: as on the left)",
              ylabel="loss on test rows, rank 0")
    picture.plain_ticks(right.yaxis, [tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1)
                                      if tick >= 0.9 * min(lines[0]["losses"])])
    figure.suptitle(message(lines), fontsize=11)
    picture.save(figure, path)


def message(lines):
    """What the picture shows, from its own figures."""
    first = lines[0]
    stale = max((one for one in lines if one["way"].startswith("staleness")),
                key=lambda one: one["steps_per_second"])
    more = stale["steps_per_second"] / first["steps_per_second"] - 1
    return (f"One of {first['ranks']} ranks takes {first['slow_factor']:g} times as long: bounded "
            f"staleness gives {100 * more:.0f} % more gradients a second")


def measured(options):
    done = subprocess.run([f"{options.build}/bench/training/straggler", *options.options],
                          stdout=subprocess.PIPE, text=True, timeout=600, check=False,
                          env={"GYRE_SOCKET_IFNAME": "lo", **os.environ})
    if done.returncode != 0:
        sys.exit(f"straggler ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    options = arguments()
    if options.recorded:
        lines = provenance_of.newest_results("training_straggler")
    else:
        lines = measured(options)
    print(f"{'way':24} {'gradients/s':>11} {'p50 ms':>7} {'p99 ms':>7} {'staleness':>10} "
          f"{'straggler':>28} {'loss':>8}")
    for one in lines:
        print(f"{one['way']:24} {one['steps_per_second']:11.1f} {one['fast_step_p50_ms']:7.1f} "
              f"{one['fast_step_p99_ms']:7.1f} {one['staleness_most']:10} "
              f"rank {one['straggler']}: {one['straggler_ms']:5.1f} ms, others "
              f"{one['others_ms']:5.1f} {one['losses'][-1]:8.4f}")
    if options.plot:
        plot(lines, options.plot)
    if options.record and not options.recorded:
        provenance_of.append_results("training_straggler", "bench/training/straggler.py", lines)


if __name__ == "__main__":
    main()
