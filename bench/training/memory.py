#!/usr/bin/env python3
"""Memory of sharded models by stage, type and ranks, as the operating system counts it. It is
compared with the formulas of gradsync.h, plus the units that are temporarily whole and the memory
of a rank's links. Also by factor, with the traffic and time of a step.

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
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8],
                        help="ranks that are processes")
    parser.add_argument("--threads", type=int, default=64,
                        help="ranks that are threads of one process; 0: none")
    parser.add_argument("--parameters", type=int, default=8 << 20)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--record", action="store_true",
                        help="append to bench/results/training_memory.jsonl")
    parser.add_argument("--recorded", action="store_true",
                        help="measure nothing; use the newest recorded figures")
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


def draw_stages(axes, stages):
    most = 0
    for kind, style in (("float", "-"), ("bfloat16", "--")):
        for stage in (1, 2, 3):
            chosen = [one for one in stages if one["type"] == kind and one["stage"] == stage]
            ranks = [one["ranks"] for one in chosen]
            expected = [sum(one[part] for part in PARTS) for one in chosen]
            color = f"C{stage}"
            axes.plot(ranks, expected, style, color=color, label=f"stage {stage}, {kind}")
            axes.plot(ranks, [one["bytes_per_parameter"] for one in chosen], "o", color=color)
            over = [one["bytes_per_parameter"] / fits - 1 for one, fits in zip(chosen, expected)]
            most = max([most, *map(abs, over)])
    axes.set_xscale("log")
    picture.plain_ticks(axes.xaxis, sorted({one["ranks"] for one in stages}))
    axes.set_ylim(bottom=0)
    axes.set(xlabel="ranks (lines: formula; points: the system's count)",
             ylabel="bytes per parameter and rank")
    axes.set_title(f"Memory: within {100 * most:.1f} % of the formulas", fontsize=10, loc="left")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=9,
                frameon=False)


def draw_factors(panels, factors):
    """What grows and falls with the size of a group: a panel for each."""
    places = range(len(factors))
    shown = (("bytes_per_parameter", 1, "bytes per\nparameter"),
             ("moved_bytes", 1e-6, "MB moved\na step"), ("step_ms", 1, "ms a step"))
    for number, (axes, (name, scale, label)) in enumerate(zip(panels, shown)):
        values = [one[name] * scale for one in factors]
        bars = axes.bar(places, values, 0.6, color=f"C{number}")
        axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=9)
        axes.set_ylim(0, 1.25 * max(values))
        axes.set_ylabel(label, fontsize=9)
        axes.set_xticks(list(places), [str(one["factor"]) for one in factors])
    first, last = factors[0], factors[-1]
    held = last["bytes_per_parameter"] / first["bytes_per_parameter"]
    panels[0].set_title(f"Groups of {last['factor']}: {100 * held:.0f} % of the bytes, "
                        f"{last['moved_bytes'] / first['moved_bytes']:.1f} times the traffic",
                        fontsize=10, loc="left")
    panels[-1].set_xlabel(f"ranks that share a model, of {first['ranks']}; stage 3, float")


def plot(stages, factors, path):
    pyplot = picture.load_pyplot()
    figure = pyplot.figure(figsize=(picture.WIDTH, 5), layout="constrained")
    grid = figure.add_gridspec(3, 2)
    draw_stages(figure.add_subplot(grid[:, 0]), stages)
    draw_factors([figure.add_subplot(grid[row, 1]) for row in range(3)], factors)
    picture.save(figure, path)


def divisors(number):
    return [one for one in range(1, number + 1) if number % one == 0]


def recorded():
    """(lines by stage, lines by factor) of the newest recorded run; the latter come last."""
    rows = provenance_of.newest_results("training_memory")
    factors = divisors(max(row["ranks"] for row in rows if row["as"] == "processes"))
    for row in rows:
        show(row)
    return rows[:-len(factors)], rows[-len(factors):]


def measured(options):
    stages = [measure(options, ranks, stage, kind)
              for kind in ("float", "bfloat16") for ranks in options.ranks for stage in (1, 2, 3)]
    if options.threads > 0:
        stages += [measure(options, options.threads, stage, kind, threads=True)
                   for kind in ("float", "bfloat16") for stage in (1, 2, 3)]
    most = max(options.ranks)
    return stages, [measure(options, most, 3, "float", factor) for factor in divisors(most)]


def main():
    options = arguments()
    print(f"{'ranks':>5} {'as':10} {'stage':>5} {'factor':>6} {'type':9} {'B/param':>9} "
          f"{'formula':>8} {'+ units':>9} {'+ links':>9} {'over':>8} "
          f"{'moved MB':>9} {'step ms':>8}")
    stages, factors = recorded() if options.recorded else measured(options)
    if options.plot:
        plot(stages, factors, options.plot)
    if options.record and not options.recorded:
        provenance_of.append_results("training_memory", "bench/training/memory.py",
                                     stages + factors)


if __name__ == "__main__":
    main()
