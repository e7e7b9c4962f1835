#!/usr/bin/env python3
"""The section of docs/results.md that tools/dev compare's records make: between the lines
`<!-- compare: begin -->` and `<!-- compare: end -->` it is written anew.

    tools/dev compare --record
    bench/compare/compare_chart.py    # draws the picture
    bench/compare/compare_page.py     # writes; --check: fails if it is not up to date
"""
import argparse
import os
import sys

import recorded

PAGE = os.path.join(recorded.ROOT, "docs", "results.md")
BEGIN, END = "<!-- compare: begin -->\n", "<!-- compare: end -->\n"
COLUMNS = 6  # sizes that a table shows; means take in all


def digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def how(kind):
    said = [f"{kind.ranks} ranks over {'TCP' if kind.transport == 'tcp' else 'shared memory'}",
            kind.type,
            "registered memory" if kind.memory == "registered" else "memory from malloc",
            "cold caches" if kind.cold else "warm caches"]
    return ", ".join(said + (["inputs written anew"] if kind.written else []))


def shown_sizes(tables):
    """The sizes that most collectives have, thinned out."""
    sizes = sorted({line["bytes"] for name, lines in tables.items() if name != "barrier"
                    for line in lines})
    if len(sizes) <= COLUMNS:
        return sizes
    return sorted({sizes[round(i * (len(sizes) - 1) / (COLUMNS - 1))] for i in range(COLUMNS)})


def cell(line):
    if line is None or "gyre" not in line["us"]:
        return ""
    said = digits(line["us"]["gyre"])
    if line["ratio"] is not None:
        said += f" ({line['ratio']:.2f})"
    return said + (" disturbed" if line["disturbed"] else "")


def worst_of(lines):
    """(ratio, size, peer, interval) of the worst row that counts, as text."""
    counted = recorded.counted(lines)
    if not counted:
        return ""
    line = min(counted, key=lambda each: each["ratio"])
    low, high = line["interval"]
    where = "" if len(lines) == 1 else f" at {recorded.size_text(line['bytes'])}"
    return f"{line['ratio']:.2f} ({low:.2f} to {high:.2f}){where}, {line['best']}"


def table(tables):
    sizes = shown_sizes(tables)
    yield "| collective | " + " | ".join(map(recorded.size_text, sizes)) + \
        " | geometric mean | worst |"
    yield "|---|" + "---:|" * (len(sizes) + 1) + "---|"
    for name, lines in tables.items():
        by_size = {line["bytes"]: line for line in lines}
        cells = [cell(by_size.get(size)) for size in sizes]
        if name == "barrier":
            cells[0] = cell(lines[0])
        mean = recorded.mean_of(lines)
        yield f"| {recorded.NAMES[name]} | " + " | ".join(cells) + \
            f" | {f'{mean:.2f}' if mean else ''} | {worst_of(lines)} |"
    by_size = {line["bytes"]: line for lines in tables.values() for line in lines}
    for what, said in (("cache", "*limit: through the caches*"),
                       ("bypass", "*limit: past the caches*"),
                       ("stream", "*limit: from and to memory*")):
        cells = [digits(by_size[size]["limits_us"][what])
                 if what in by_size.get(size, {"limits_us": {}})["limits_us"] else ""
                 for size in sizes]
        yield f"| {said} | " + " | ".join(cells) + " | | |"


def section(kind, tables):
    lines = [line for each in tables.values() for line in each]
    commits = sorted({line["commit"] for line in lines})
    days = sorted({line["time"][:10] for line in lines})
    kept = sum(line["kept"] for line in lines)
    measured = sum(line["rounds"] for line in lines)
    shortest = min(line["limits_us"]["line"] for line in lines)
    peers = ", ".join(sorted(set(lines[0]["versions"].values()) -
                             {lines[0]["versions"].get("gyre")}))
    yield f"**{how(kind)}.** {kind.machine}, {days[0]}" + \
        (f" to {days[-1]}" if len(days) > 1 else "") + f", commit {' and '.join(commits)}."
    yield f"Peers: {peers}. {kept} of {measured} rounds count; in the others the machine was slow."
    yield f"The shortest exchange between two cores takes {digits(shortest)} µs."
    yield ""
    yield from table(tables)


def page(lines, in_place=False):
    """The text between the marks."""
    if not lines:
        return "Nothing has been recorded yet.\n"
    text = ["![The peers' times over Gyre's by size, for each collective]"
            "(../bench/results/compare.svg)", "",
            "Each entry is Gyre's time in microseconds, and in parentheses the best peer's time",
            "over Gyre's: above 1 Gyre is faster than every peer. The worst one has its 95 %",
            "interval, by a bootstrap over rounds.", ""]
    for kind, tables in recorded.newest(lines, in_place).items():
        text += [*section(kind, tables), ""]
    return "\n".join(text)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--page", default=PAGE, metavar="FILE.md")
    parser.add_argument("--results", default=recorded.FILE, metavar="FILE.jsonl")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the "
                        "page does not say what was recorded")
    options = parser.parse_args(words)
    with open(options.page, encoding="utf-8") as file:
        before, mark, rest = file.read().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        sys.exit(f"compare_page.py: {options.page} has no lines {BEGIN.strip()} and {END.strip()}")
    text = before + BEGIN + page(recorded.read(options.results)) + END + after
    if options.check:
        return 0 if text == before + BEGIN + rest else 1
    with open(options.page, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
