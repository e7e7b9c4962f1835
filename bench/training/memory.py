#!/usr/bin/env python3
"""Memory of sharded models by stage, type and ranks, as the operating system counts it, beside the
formulas of gradsync.h, the units that are whole for a while, and what a rank's links take; and by
factor, with what a step moves and takes.

Each line is a run of bench/training/shard_memory. --record appends them to
bench/results/training_memory.jsonl, --plot draws both pictures (matplotlib)."""
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

# What a rank's communicators take at least, whatever the model: slots of the links, stacks, tables.
LINKS_BYTES = 250 << 10
PARTS = ("formula", "whole_units", "links")  # of what a parameter is to take


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="as processes")
    parser.add_argument("--threads", type=int, default=64, help="ranks of one process; 0: none")
    parser.add_argument("--parameters", type=int, default=8 << 20)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--record", action="store_true",
                        help="append to bench/results/training_memory.jsonl")
    parser.add_argument("--plot", type=picture.file_to_draw, metavar="FILE",
                        help="pictures, as SVG")
    return parser.parse_args()


def measure(options, ranks, stage, kind, factor=0, threads=False):
    command = [f"{options.build}/bench/training/shard_memory", "--stage", str(stage),
               "--type", kind, "--parameters", str(options.parameters),
               "--units", str(options.units), "--steps", str(options.steps),
               "--factor", str(factor)]
    if threads:
        command += ["-t", str(ranks)]
    else:
        command = [f"{options.build}/tools/gyre", "run", "-n", str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                          env={"GYRE_SOCKET_IFNAME": "lo", **os.environ})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    line = json.loads(done.stdout[done.stdout.index("{"):])
    line["links"] = round(LINKS_BYTES / options.parameters, 4)
    show(line)
    return line


def show(line):
    with_units = line["formula"] + line["whole_units"]
    expected = with_units + line["links"]
    over = line["bytes_per_parameter"] / expected - 1
    print(f"{line['ranks']:5} {line['as']:10} {line['stage']:5} {line['factor']:6} "
          f"{line['type']:9} {line['bytes_per_parameter']:9.3f} {line['formula']:8.3f} "
          f"{with_units:9.3f} {expected:9.3f} {100 * over:7.1f}% "
          f"{line['moved_bytes'] / 1e6:9.1f} {line['step_ms']:8.1f}", flush=True)


def plot(stages, factors, path):
    pyplot = picture.load_pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for kind, style in (("float", "-"), ("bfloat16", "--")):
        for stage in (1, 2, 3):
            chosen = [one for one in stages if one["type"] == kind and one["stage"] == stage]
            ranks = [one["ranks"] for one in chosen]
            color = f"C{stage}"
            left.plot(ranks, [sum(one[part] for part in PARTS) for one in chosen], style,
                      color=color, label=f"stage {stage}, {kind}")
            left.plot(ranks, [one["bytes_per_parameter"] for one in chosen], "o", color=color)
    left.set(xscale="log", xlabel="ranks", ylabel="bytes per parameter and rank",
             title="lines: formula; points: the system's count")
    left.legend(fontsize=8)
    places = range(len(factors))
    for shift, name, scale in ((-0.25, "bytes_per_parameter", 1), (0, "moved_bytes", 1),
                               (0.25, "step_ms", 1)):
        most = max(one[name] for one in factors) * scale
        right.bar([place + shift for place in places], [one[name] / most for one in factors], 0.25,
                  label=f"{name} (most: {most:.4g})")
    right.set_xticks(list(places), [str(one["factor"]) for one in factors])
    right.set(xlabel=f"factor, {factors[0]['ranks']} ranks, stage 3", ylabel="share of the most")
    right.legend(fontsize=8)
    figure.tight_layout()
    picture.save(figure, path)


def main():
    options = arguments()
    print(f"{'ranks':>5} {'as':10} {'stage':>5} {'factor':>6} {'type':9} {'B/param':>9} "
          f"{'formula':>8} {'+ units':>9} {'+ links':>9} {'over':>8} "
          f"{'moved MB':>9} {'step ms':>8}")
    stages = [measure(options, ranks, stage, kind)
              for kind in ("float", "bfloat16") for ranks in options.ranks for stage in (1, 2, 3)]
    if options.threads > 0:
        stages += [measure(options, options.threads, stage, kind, threads=True)
                   for kind in ("float", "bfloat16") for stage in (1, 2, 3)]
    most = max(options.ranks)
    factors = [measure(options, most, 3, "float", factor)
               for factor in range(1, most + 1) if most % factor == 0]
    if options.plot:
        plot(stages, factors, options.plot)
    if options.record:
        provenance_of.append_results("training_memory", "bench/training/memory.py",
                                     stages + factors)


if __name__ == "__main__":
    main()
