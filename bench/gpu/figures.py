"""The figures of bench/gpu.py: the bytes that a plan moves, ratios to the limits of the same run,
and the page. Nothing here runs a program.

A rank's part of an all-reduce of S bytes over n ranks is n chunks of S / n. This table counts the
chunks that its moves read and write. All ranks are on one GPU, so every link is that GPU's memory.

  ring, simple     send 2, (n-2) sums 3, the last sum 4, (n-2) passes 3, take 2      = 6n - 4
  ring, direct     the first send is read in place: 0; (n-2) sums 3, the last sum stores and
                   pushes 4; (n-2) passes 2, since the input is in place; take 0     = 5n - 6
  twoshot, simple  (n-1) sends 2, the sum reads n and writes n, (n-1) takes 2        = 6n - 4
  twoshot, direct  the sum alone: n read, n written                                  = 2n
  oneshot, simple  of whole buffers: read 1, write n-1; read n, write 1              = 2n + 1
  oneshot, direct  of whole buffers: read n, write 1                                 = n + 1

n ranks move n times as many. Slots may stay in the GPU's cache: the floor of `simple` is the plan's
traffic, not the traffic that must reach the memory. So a ratio can be above 1."""
import statistics

GATES = {  # measure: (least or most, limit, what it says)
    "copy": ("least", 0.92, "copy move, of the driver's device-to-device copy"),
    "reduce": ("least", 0.90, "reduce move, of a three-stream triad"),
    "floor_2": ("least", 0.85, "all-reduce >= 1 GiB of 2 ranks, of the memory floor of its plan"),
    "floor_4": ("least", 0.85, "all-reduce >= 1 GiB of 4 ranks, of the memory floor of its plan"),
    "graph_8B": ("most", 2.5, "8 B all-reduce in a replayed graph, over an empty kernel's replay"),
    "interpreter": ("most", 1.02, "interpreted over written out, worst size from 64 KiB on"),
    "nccl": ("most", 1.0, "time over NCCL's, worst size"),
}


def moved_bytes(algorithm, protocol, ranks, size):
    """Bytes that the moves of all ranks read and write; None for a plan that is not worked out."""
    n = ranks
    factor = {("ring", "simple"): 6 * n - 4, ("ring", "direct"): 5 * n - 6,
              ("twoshot", "simple"): 6 * n - 4, ("twoshot", "direct"): 2 * n,
              ("oneshot", "simple"): (2 * n + 1) * n,
              ("oneshot", "direct"): (n + 1) * n}.get((algorithm, protocol))
    return None if factor is None or n < 2 else factor * size


def paired_ratio(over, under):
    """The median over rounds of one contestant's time over the other's in the same round."""
    return statistics.median(a / b for a, b in zip(over["us"], under["us"]))


def by_measure(lines):
    """{(measure, bytes): line} of gpu_moves."""
    return {(line["measure"], line["bytes"]): line for line in lines}


def largest(found, measure):
    sizes = [size for name, size in found if name == measure]
    return found[measure, max(sizes)] if sizes else None


def memory_bandwidth(found):
    """Bytes a second: the best that a copy or a triad of this run moved."""
    best = 0.0
    for measure, streams in (("copy_driver", 2), ("triad", 3)):
        for (name, size), line in found.items():
            if name == measure:
                best = max(best, streams * size / min(line["us"]) * 1e6)
    return best


def move_ratios(found):
    ratios = {}
    for name, fast, own in (("copy", "copy_driver", "copy_move"),
                            ("reduce", "triad", "reduce_move")):
        line = largest(found, own)
        if line is not None:
            ratios[name] = paired_ratio(found[fast, line["bytes"]], line)
    rings = [size for name, size in found if name == "ring_interpreted"]
    compared = {size: paired_ratio(found["ring_interpreted", size], found["ring_straight", size])
                for size in rings}
    if any(size >= 64 << 10 for size in compared):
        ratios["interpreter"] = max(r for size, r in compared.items() if size >= 64 << 10)
    if 8 in compared:
        ratios["interpreter_8B"] = compared[8]
    return ratios


def floor_fraction(ranks, size, time_us, choice, bandwidth):
    """Of the time that the plan's bytes take at the memory's best; None if they are not known."""
    moved = moved_bytes(*choice, ranks, size) if choice else None
    if not moved or not bandwidth:
        return None
    return moved / bandwidth * 1e6 / time_us


def verdict(name, value):
    kind, limit, _ = GATES[name]
    return value >= limit if kind == "least" else value <= limit


def ratio_table(ratios):
    """Lines of Markdown: each gate, what was measured, and whether that holds."""
    lines = ["| ratio | value | limit | |", "|---|---:|---:|---|"]
    for name, (kind, limit, words) in GATES.items():
        bound = f"{'>=' if kind == 'least' else '<='} {limit}"
        if name not in ratios:
            lines.append(f"| {words} | not measured | {bound} | |")
            continue
        lines.append(f"| {words} | {ratios[name]:.3f} | {bound} | "
                     f"{'holds' if verdict(name, ratios[name]) else 'MISSED'} |")
    return lines


def ratio_picture(ratios):
    """SVG: a bar for each gate, as long as what was measured is of its limit, which is one line for
    all. A bar may have to reach that line, or must not cross it."""
    left, unit, row = 520, 200, 26  # of the line that is the limit: left + unit
    height = row * (len(GATES) + 2)
    text = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 2 * unit + 80}" '
            f'height="{height}" font-family="sans-serif" font-size="12">']
    for place, (name, (kind, limit, words)) in enumerate(GATES.items()):
        y = row * (place + 1)
        text.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{words} '
                    f'({"at least" if kind == "least" else "at most"} {limit})</text>')
        if name not in ratios:
            text.append(f'<text x="{left + 4}" y="{y + 13}" fill="#777">not measured</text>')
            continue
        width = min(2.0, ratios[name] / limit) * unit
        colour = "#3a7d44" if verdict(name, ratios[name]) else "#b3261e"
        text.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="18" fill="{colour}"/>'
                    f'<text x="{left + width + 4:.1f}" y="{y + 13}">{ratios[name]:.3f}</text>')
    text.append(f'<line x1="{left + unit}" y1="{row - 6}" x2="{left + unit}" y2="{height - row}" '
                f'stroke="#000" stroke-dasharray="3 3"/>'
                f'<text x="{left + unit}" y="{row - 10}" text-anchor="middle">limit</text></svg>')
    return "\n".join(text).replace(">=", "&gt;=") + "\n"


def page(provenance, ratios, rows, notes, pictures):
    """Markdown. `rows`: {(kind, ranks): {bytes: us}}."""
    text = ["# Gyre on one GPU", "",
            f"{provenance['machine']}, commit {provenance['commit']}, {provenance['time']}, by "
            f"`{provenance['command']}`. Times are of one all-reduce of floats, out of place, in "
            "microseconds of the wall clock.", "",
            *ratio_table(ratios)]
    text += ["", *[f"- {note}" for note in notes], ""]
    columns = list(rows)
    if columns:
        text += ["| bytes | " + " | ".join(f"{ranks} {kind}" for kind, ranks in columns) + " |",
                 "|---:|" + "---:|" * len(columns)]
        for size in sorted({size for times in rows.values() for size in times}):
            cells = [f"{rows[column][size]:.2f}" if size in rows[column] else ""
                     for column in columns]
            text.append(f"| {size} | " + " | ".join(cells) + " |")
    text += ["", *[f"![{name}]({name})" for name in pictures]]
    return "\n".join(text).rstrip() + "\n"
