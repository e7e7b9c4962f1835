#!/usr/bin/env python3
"""Draws rooms.svg, from the table of rooms in ARCHITECTURE.md, and all_reduce.svg, the path of one
all-reduce of two ranks."""
import argparse
import html
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests/house"))
import rooms_test  # noqa: E402  pylint: disable=wrong-import-position

WIDTH = 700
# What a box says under its room's name: two or three words.
PURPOSE = {"include/gyre/": "the C API", "lib/base/": "statuses, settings, log, Wait",
           "lib/command_line/": "options, --help", "lib/loaded/": "libraries by dlopen",
           "lib/topology/": "the machine", "lib/trust/": "keys, sockets",
           "lib/plan/": "algorithms, proof", "lib/tune/": "which algorithm",
           "lib/control/": "control plane", "lib/rendezvous/": "finding the id",
           "lib/transport/": "contract, slots", "kernels/cpu/": "arithmetic",
           "kernels/cuda/": "arithmetic, GPU", "transports/*/": "self, shm, tcp",
           "lib/exec/": "drives plans", "lib/cuda/": "drives GPUs", "lib/call/": "a call as data",
           "lib/links/": "connections", "lib/sendrecv/": "sends, receives",
           "lib/device/": "what a GPU adds", "lib/comm/": "communicators, operations, streams",
           "lib/api/": "handles, arguments", "lib/gradsync/": "training, on the C API",
           "tools/": "gyre, dev", "bench/": "benchmarks", "docs/examples/": "to copy from",
           "tests/": "tests"}
# Above all rooms of the library.
PRODUCTS = ["lib/gradsync/", "tools/", "bench/", "docs/examples/", "tests/"]
GPU = {"lib/loaded/", "kernels/cuda/", "lib/cuda/", "lib/device/"}


def layers(table):
    """{room: its layer}: one above the highest room that it may include."""
    found = {}

    def layer(room):
        if room not in found:
            below = [other for other in table if other != room and room not in PRODUCTS
                     and rooms_test.allows(table[room] or [], other + "x.h")]
            below += [other for entry in table[room] or [] if entry.endswith(".h")
                      for other in table if entry.startswith(other) and other != room]
            base = [] if room in ("lib/base/", "include/gyre/") else ["lib/base/"]
            found[room] = 1 + max(map(layer, below + base), default=-1)
        return found[room]

    highest = max(layer(room) for room in table if room not in PRODUCTS)
    return {room: highest + 1 if room in PRODUCTS else layer(room) for room in table}


class Picture:
    def __init__(self, height):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                      f'width="{WIDTH}" height="{height}" font-family="DejaVu Sans, Verdana, '
                      'Helvetica, sans-serif">',
                      f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']

    def box(self, x, y, width, height, fill, name, text=""):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
                          f'fill="{fill}" stroke="#555555"/>')
        middle = x + width / 2
        self.text(middle, y + (height / 2 - 2 if text else height / 2 + 5), name, 13, bold=True)
        if text:
            self.text(middle, y + height / 2 + 14, text, 11)

    def text(self, x, y, text, size=12, bold=False, anchor="middle", fill="#222222"):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{fill}"{weight}>{html.escape(text)}</text>')

    def line(self, x1, y1, x2, y2, dashed=False, heads=""):
        """`heads`: "end" or "both"."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
                          f'stroke="#555555" stroke-width="1.5"{dash}/>')
        if heads:
            self.head(x1, y1, x2, y2)
        if heads == "both":
            self.head(x2, y2, x1, y1)

    def head(self, x1, y1, x2, y2):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        points = [(x2, y2), (x2 - 9 * dx - 4 * dy, y2 - 9 * dy + 4 * dx),
                  (x2 - 9 * dx + 4 * dy, y2 - 9 * dy - 4 * dx)]
        self.parts.append('<polygon points="' + " ".join(f"{x:g},{y:g}" for x, y in points) +
                          '" fill="#555555"/>')

    def svg(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def draw_rooms(table):
    floor = layers(table)
    highest = max(floor.values())
    pitch, height, top, left = 52, 42, 44, 10
    picture = Picture(top + (highest + 1) * pitch + 12)
    picture.text(WIDTH / 2, 20, "A room may include rooms of lower layers only", 14, bold=True)
    picture.text(WIDTH / 2, 37, "(which of them: the table; green: only for GPUs)", 11)
    for level in range(highest + 1):
        rooms = [room for room in table if floor[room] == level]
        width = (WIDTH - 2 * left - 10 * (len(rooms) - 1)) / len(rooms)
        wide = min(width, 330)
        start = (WIDTH - len(rooms) * wide - 10 * (len(rooms) - 1)) / 2
        for place, room in enumerate(rooms):
            picture.box(start + place * (wide + 10), top + (highest - level) * pitch, wide, height,
                        fill_of(room), room.rstrip("/"), PURPOSE.get(room, ""))
    return picture.svg()


def fill_of(room):
    if room in PRODUCTS:
        return "#f3e3c3"
    return "#d5ead0" if room in GPU else "#dbe6f4"


# (room, what happens there, how often); drawn for both ranks, from above.
WAY = [("lib/api", "checks arguments, makes a request"),
       ("lib/comm", "takes it alone, or in a group"),
       ("lib/tune", "chooses algorithm and protocol"),
       ("lib/plan", "builds the plan: lanes of steps"),
       ("lib/comm", "binds the plan to links and buffers"),
       ("lib/exec", "walks the plan, or waits: cursor, move"),
       ("kernels/cpu", "reduces sources into destinations"),
       ("transports/*", "slots: what this rank gave")]
KEPT = (2, 4)  # the steps that are looked up after the first time


def draw_all_reduce():
    pitch, height, top, wide = 58, 42, 64, 250
    columns = (20, WIDTH - 20 - wide)
    picture = Picture(top + len(WAY) * pitch + 34)
    picture.text(WIDTH / 2, 22, "One all-reduce of two ranks, each in its caller's thread", 14,
                 bold=True)
    for rank, x in enumerate(columns):
        picture.text(x + wide / 2, 46, f"gyreAllReduce() on rank {rank}", 12, bold=True)
        picture.line(x + wide / 2, 50, x + wide / 2, top - 2, heads="end")
        for place, (room, text) in enumerate(WAY):
            y = top + place * pitch
            kept = KEPT[0] <= place < KEPT[1]
            picture.box(x, y, wide, height, "#eeeeee" if kept else "#dbe6f4", room, text)
            if place + 1 < len(WAY):
                picture.line(x + wide / 2, y + height, x + wide / 2, y + pitch - 1, heads="end")
    annotate(picture, columns, wide, top, pitch, height)
    return picture.svg()


def annotate(picture, columns, wide, top, pitch, height):
    """Between the columns: what is kept, where the loop is, and what passes between the ranks."""
    middle = WIDTH / 2

    def row(place):
        return top + place * pitch + height / 2

    picture.text(middle, row(2) + 24, "first time only;", 11)
    picture.text(middle, row(2) + 38, "then a look-up", 11)
    picture.text(middle, row(2) + 52, "(same on all ranks)", 11)
    picture.text(middle, row(5) - 6, "again and again,", 11)
    picture.text(middle, row(5) + 8, "until done: no lock,", 11)
    picture.text(middle, row(5) + 22, "no allocation", 11)
    last = row(len(WAY) - 1)
    picture.line(columns[0] + wide + 4, last, columns[1] - 4, last, heads="both")
    picture.text(middle, last - 8, "shared memory,", 11)
    picture.text(middle, last + 18, "or bytes over TCP", 11)
    picture.line(columns[0] + wide + 4, row(6), columns[1] - 4, last - 24, dashed=True)
    picture.line(columns[1] - 4, row(6), columns[0] + wide + 4, last - 24, dashed=True)
    picture.text(middle, row(6) - 4, "reads the peer's data", 11)
    picture.text(middle, last + pitch / 2 + 14,
                 "The call returns when the result is in the output; an error names the rank to "
                 "blame.", 12)


def pictures(table):
    """{file name: its text}"""
    return {"rooms.svg": draw_rooms(table), "all_reduce.svg": draw_all_reduce()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=HERE,
                        help="where to write both pictures (default: docs/pictures)")
    folder = parser.parse_args().folder
    text = (HERE.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for name, svg in pictures(rooms_test.rooms_table(text)).items():
        (folder / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
