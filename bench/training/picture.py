"""Pictures of training, as SVG: their shared parts, a loss curve and a race. It runs in any Python
with matplotlib, which need not be the one with PyTorch: picture.py KIND DATA.json PICTURE.svg."""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

SYSTEM_PYTHON = "/usr/bin/python3"
WIDTH = 9.7  # inches, for a page of 700 pixels: a point is a pixel there
PALETTE = ["#4c4c4c", "#c44e52", "#dd8452", "#4c72b0", "#55a868", "#8172b3", "#937860"]


def find_python():
    """A Python with matplotlib: this one or the system's."""
    for python in (sys.executable, SYSTEM_PYTHON):
        try:
            tried = subprocess.run([python, "-E", "-c", "import matplotlib"], check=False,
                                   capture_output=True, timeout=120)
        except OSError:
            continue
        if tried.returncode == 0:
            return python
    sys.exit(f"a picture needs matplotlib, and neither {sys.executable} nor {SYSTEM_PYTHON} has it "
             "(Debian: python3-matplotlib)")


def draw(kind, data, path):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(data, file)
        file.flush()
        subprocess.run([find_python(), "-E", __file__, kind, file.name, path], check=True,
                       timeout=300)


def curve(pyplot, data):
    figure, axes = pyplot.subplots()
    axes.plot(data["seconds"], data["losses"])
    ranks = f"{data['ranks']} ranks, {data['parallel']}" if data["ranks"] > 1 else "1 rank"
    axes.set(xlabel="seconds", ylabel="loss", title=ranks)
    return figure


def race(pyplot, data):
    """For each program: the loss over time, a line for each way, and what a step takes. The bars'
    names and colours are the lines' too."""
    figure, rows = pyplot.subplots(len(data), 2, figsize=(WIDTH, 3.7 * len(data)), squeeze=False,
                                   layout="constrained")
    for (program, found), (left, right) in zip(data.items(), rows):
        race_over_time(left, program, found)
        race_steps(right, program, found)
    return figure


def race_over_time(axes, program, found):
    ways = found["rows"]
    for way, color in zip(ways, PALETTE):
        axes.plot(way["times"], way["losses"], color=color, linewidth=1.2)
        axes.plot(way["times"][-1], way["losses"][-1], "o", color=color)
    axes.axhline(found["loss"], color="0.7", linestyle="--", zorder=0)
    alone = ways[0]["seconds_to_loss"]
    best = min(ways[1:], key=lambda way: way["seconds_to_loss"])
    axes.set_title(f"{program}: a loss of {found['loss']:g} after {alone:.1f} s on one rank,\n"
                   f"{best['seconds_to_loss']:.1f} s on two ({best['way'].split(', ', 1)[1]})",
                   fontsize=10, loc="left")
    axes.set(xlabel="seconds (lines: colours as on the right)", ylabel="loss, mean of ten steps")


def race_steps(axes, program, found):
    ways = found["rows"]
    places = range(len(ways))
    waited = [max(way["exposed_ms"], 0) for way in ways]
    computed = [way["p50_ms"] - more for way, more in zip(ways, waited)]
    axes.barh(places, computed, color=PALETTE[:len(ways)])
    axes.barh(places, waited, left=computed, color=PALETTE[:len(ways)], alpha=0.4, hatch="//")
    axes.axvline(found["floor_ms"], color="0.4", linestyle=":")
    axes.set_yticks(list(places), [way["way"] for way in ways])
    axes.invert_yaxis()
    gyre, gloo = (next(way for way in ways if way["way"] == f"2, DDP, {name}")
                  for name in ("Gyre", "gloo"))
    axes.set_title(f"{program}: DDP waits {gyre['exposed_ms']:.1f} ms a step with Gyre,\n"
                   f"{gloo['exposed_ms']:.1f} ms with gloo", fontsize=10, loc="left")
    axes.set_xlabel("ms a step; hatched: waiting for communication,\n"
                    "over two ranks that do not communicate (dotted)")


def file_to_draw(path):
    """For --plot: before anything is measured, whether this Python could draw it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(f"{sys.executable} has no matplotlib to draw with "
                                         "(Debian: python3-matplotlib)")
    return path


def load_pyplot():
    """Matplotlib's, for files alone."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "gyre"  # else names in the file are drawn by lot
    from matplotlib import pyplot
    return pyplot


def plain_ticks(axis, values):
    """These values, as plain numbers, and no others: for logarithmic axes."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def legend_below(figure, axes, columns):
    """One legend for all panels, under them: it covers nothing."""
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.legend(*axes.get_legend_handles_labels(), loc="lower center", ncols=columns,
                  frameon=False, fontsize=9)


def save(figure, path):
    """Without what differs from run to run: the same figures make the same file."""
    ending = pathlib.Path(path).suffix.lower()
    bare = dict.fromkeys(["Creator", "Date", "Format", "Type"]) if ending == ".svg" else None
    figure.savefig(path, metadata=bare)


def main():
    kind, source, path = sys.argv[1:]
    data = json.loads(pathlib.Path(source).read_text(encoding="utf-8"))
    save({"curve": curve, "race": race}[kind](load_pyplot(), data), path)


if __name__ == "__main__":
    main()
