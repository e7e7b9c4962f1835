#!/usr/bin/env python3
"""The chart of all-reduce in README.md: time by size of Gyre, Open MPI and MPICH, and Gyre's ratio
to each below it. Every size of the newest recorded run is drawn, also where Gyre is slower.

    bench/compare/compare.py --build build --rounds 5 --record    # measures
    bench/compare/chart.py                                        # draws, with matplotlib
"""
import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/training"))
import picture  # noqa: E402  pylint: disable=wrong-import-position

TRANSPORTS = {"shm": "shared memory", "tcp": "TCP over loopback"}
SHORT = {"shm": "shared memory", "tcp": "TCP"}
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}
COLORS = {"gyre": "#c44e52", "openmpi": "#4c72b0", "mpich": "#55a868"}
MARKERS = {"gyre": "o", "openmpi": "s", "mpich": "^"}


class NothingToDraw(Exception):
    """The results hold no run of the kind that is asked for."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--results", nargs="+", metavar="FILE.jsonl",
                        default=[str(ROOT / "bench/results/all_reduce.jsonl")])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--memory", choices=["malloc", "registered"], default="malloc",
                        help="memory of Gyre's buffers; see compare.py --help")
    parser.add_argument("--out", type=picture.file_to_draw, metavar="FILE.svg",
                        default=str(ROOT / "bench/results/all_reduce.svg"))
    return parser.parse_args()


def read(paths):
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows += map(json.loads, file)
    return rows


def newest_runs(rows, ranks, memory):
    """{transport: rows, by size}: of each transport its newest run, out of place."""
    wanted = [row for row in rows if row.get("memory") == memory and row["ranks"] == ranks
              and row["collective"] == "all_reduce" and not row["in_place"]]
    if not wanted:
        raise NothingToDraw(f'no line of all_reduce on {ranks} ranks says "memory": "{memory}"; '
                            f"measure first: bench/compare/compare.py --build build "
                            f"--ranks {ranks} --memory {memory} --record")
    runs = {}
    for transport in TRANSPORTS:
        own = [row for row in wanted if row["transport"] == transport]
        newest = max((row["time"] for row in own), default=None)
        chosen = [row for row in own if row["time"] == newest]
        if chosen:
            runs[transport] = sorted(chosen, key=lambda row: row["bytes"])
    return runs


def sizes_ahead(rows):
    """(sizes at which Gyre is faster than every peer, sizes)."""
    slowest_ratio = {}
    for row in rows:
        ratio = row["p50_us"] / row["peer_p50_us"]
        slowest_ratio[row["bytes"]] = max(ratio, slowest_ratio.get(row["bytes"], 0))
    return sum(ratio < 1 for ratio in slowest_ratio.values()), len(slowest_ratio)


def title(runs, ranks):
    parts = []
    for transport, rows in runs.items():
        ahead, sizes = sizes_ahead(rows)
        noun = "" if parts else " sizes"
        parts.append(f"{ahead} of {sizes}{noun} over {SHORT[transport]}")
    return f"All-reduce on {ranks} ranks: Gyre is fastest at {' and '.join(parts)}"


def size_label(size, _=None):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"


def time_label(microseconds, _=None):
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= unit:
            return f"{microseconds / unit:g} {name}"
    return f"{microseconds:g} µs"


def draw_times(axes, rows):
    own = {row["bytes"]: row["p50_us"] for row in rows}
    axes.plot(list(own), list(own.values()), marker=MARKERS["gyre"], color=COLORS["gyre"],
              label="Gyre", zorder=3, markersize=4)
    for peer in NAMES:
        chosen = [row for row in rows if row["peer"] == peer]
        if chosen:
            axes.plot([row["bytes"] for row in chosen], [row["peer_p50_us"] for row in chosen],
                      marker=MARKERS[peer], color=COLORS[peer], label=NAMES[peer], markersize=4)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(time_label)


def draw_ratios(axes, rows):
    for peer in NAMES:
        chosen = [row for row in rows if row["peer"] == peer]
        axes.plot([row["bytes"] for row in chosen],
                  [row["p50_us"] / row["peer_p50_us"] for row in chosen], marker=MARKERS[peer],
                  color=COLORS[peer], markersize=4)
    axes.axhline(1, color="0.3", linewidth=1, zorder=0)


def label_ratios(axes):
    """Once all is drawn, as both columns share the axis: plain ticks, and what lies above 1."""
    low, high = axes.get_ylim()
    low, high = min(low, 0.45), max(high, 1.3)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10) if low <= tick <= high])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda *_: "")


def label_sizes(axes, sizes):
    axes.set_xscale("log", base=2)
    every = (len(sizes) + 7) // 8  # eight labels are readable
    axes.set_xticks(sizes[::every], [size_label(size) for size in sizes[::every]], rotation=40,
                    ha="right", rotation_mode="anchor")
    axes.minorticks_off()


def draw(runs, options):
    pyplot = picture.load_pyplot()
    pyplot.rcParams["font.size"] = 10
    figure, rows = pyplot.subplots(2, len(runs), figsize=(9.7, 6.4), sharex="col", sharey="row",
                                   squeeze=False, height_ratios=(2, 1))
    for (transport, found), top, bottom in zip(runs.items(), rows[0], rows[1]):
        draw_times(top, found)
        draw_ratios(bottom, found)
        bottom.axhspan(1, 1000, color="0.92", zorder=-1)
        top.set_title(TRANSPORTS[transport], fontsize=11)
        label_sizes(bottom, sorted({row["bytes"] for row in found}))
        for axes in (top, bottom):
            axes.grid(color="0.88", zorder=-2)
    spread = [row["p50_us"] / row["peer_p50_us"] for found in runs.values() for row in found]
    rows[1][0].set_ylim(0.8 * min(spread), 1.25 * max(spread))
    label_ratios(rows[1][0])
    rows[0][0].set_ylabel("median time")
    rows[1][0].set_ylabel("Gyre's time / theirs\n(grey: Gyre is slower)")
    figure.suptitle(title(runs, options.ranks), fontsize=12, y=0.985)
    figure.legend(*rows[0][0].get_legend_handles_labels(), loc="upper center", ncols=3,
                  frameon=False, bbox_to_anchor=(0.5, 0.955))
    figure.text(0.5, 0.012, source(runs, options), ha="center", fontsize=8, color="0.3")
    figure.subplots_adjust(left=0.09, right=0.985, top=0.86, bottom=0.2, hspace=0.07,
                           wspace=0.06)
    picture.save(figure, options.out)


def source(runs, options):
    row = next(iter(runs.values()))[0]
    counts = {transport: found[0]["rounds"] for transport, found in runs.items()}
    rounds = " and ".join(f"{count} ({transport})" for transport, count in counts.items())
    return (f"{row['machine']}; {row['time'][:10]}, commit {row['commit']}\n"
            f"floats, out of place, {options.memory} memory; medians of interleaved rounds: "
            f"{rounds}")


def main():
    options = arguments()
    try:
        runs = newest_runs(read(options.results), options.ranks, options.memory)
    except NothingToDraw as nothing:
        sys.exit(f"chart.py: {nothing}")
    draw(runs, options)
    print(title(runs, options.ranks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
