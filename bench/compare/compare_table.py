"""The results of a comparison as text, and as lines for bench/results/compare.jsonl."""
import statistics

from slow_rounds import geometric_mean


def limits_of(measurement, row):
    """Microseconds of the limits at this row's size."""
    found = {}
    for what, size in (("line", 4), ("cache", row.bytes), ("bypass", row.bytes),
                       ("stream", row.bytes)):
        times = measurement.limits.get((what, size))
        if times:
            found[what] = statistics.median(times)
    return found


def digits(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def tables_of(summaries):
    """{(collective, type, in place): its rows}, in order."""
    tables = {}
    for row in summaries:
        tables.setdefault((row.collective, row.element, row.in_place), []).append(row)
    return tables


def means(rows, summaries, own="gyre"):
    """{peer: geometric mean of its time over Gyre's} of the rows that count and have both."""
    ratios = {}
    for row in rows:
        us = summaries[row].us
        for name in us if own in us and not summaries[row].disturbed else ():
            ratios.setdefault(name, []).append(us[name] / us[own])
    return {name: geometric_mean(values) for name, values in ratios.items() if name != own}


def overall(rows, summaries):
    """(geometric mean of the ratios, least ratio, its row) of the rows that count."""
    counted = [row for row in rows
               if summaries[row].ratio is not None and not summaries[row].disturbed]
    if not counted:
        return None
    worst = min(counted, key=lambda row: summaries[row].ratio)
    return (geometric_mean(summaries[row].ratio for row in counted), summaries[worst].ratio, worst)


def tails(rows, summaries):
    """The same of the p99: that of the peer with the least median over Gyre's."""
    counted = [row for row in rows
               if summaries[row].tail_ratio is not None and not summaries[row].disturbed]
    worst = min(counted, key=lambda row: summaries[row].tail_ratio)
    return (geometric_mean(summaries[row].tail_ratio for row in counted),
            summaries[worst].tail_ratio, worst)


def show_row(row, summary, names, limits):
    line = f"{row.bytes:>10}"
    for name in names:
        line += f"  {digits(summary.us[name]) if name in summary.us else '-':>{width(name)}}"
    if summary.ratio is None:
        line += f"  {'-':>6}  {'':>13}  {'':<14}"
    else:
        low, high = summary.interval
        line += f"  {summary.ratio:>6.2f}  {f'{low:.2f} to {high:.2f}':>13}  {summary.best:<14}"
    for what in ("line", "cache", "bypass", "stream"):
        line += f"  {digits(limits[what]) if what in limits else '-':>7}"
    line += f"  {summary.kept}/{summary.measured}{' disturbed' if summary.disturbed else ''}"
    print(line)


def width(name):
    return max(8, len(name))


def show(summaries, measurement, versions, options):
    usual = measurement.usual()
    cores = ",".join(map(str, options.cores))
    print(f"\n{options.ranks} ranks over {options.transport} on cores {cores}, "
          f"{options.memory} memory, {'cold' if options.cold else 'warm'}"
          f"{', inputs written anew' if options.written else ''}; medians of "
          f"{options.rounds} rounds, in microseconds.")
    print("ratio: the best peer's time / Gyre's, with the 95 % interval of a bootstrap over rounds."
          "\nline to stream: limits of the machine (docs/benchmarks.md). Reference exchanges "
          f"usually took {usual[0]:.3f} and {usual[1]:.1f} us.")
    for name, version in versions.items():
        print(f"  {name}: {version}")
    names = list(versions)
    for (collective, element, in_place), rows in tables_of(summaries).items():
        print(f"\n{collective}, {element}, {'in' if in_place else 'out of'} place")
        print(f"{'bytes':>10}" + "".join(f"  {name:>{width(name)}}" for name in names) +
              f"  {'ratio':>6}  {'interval':>13}  {'best peer':<14}  {'line':>7}  {'cache':>7}  "
              f"{'bypass':>7}  {'stream':>7}  rounds")
        for row in rows:
            show_row(row, summaries[row], names, limits_of(measurement, row))
        found = overall(rows, summaries)
        if found:
            print(f"  geometric mean {found[0]:.2f}, worst {found[1]:.2f} at {found[2].bytes} "
                  "bytes; over each peer: " + ", ".join(
                      f"{name} {mean:.2f}" for name, mean in means(rows, summaries).items()))
            mean, worst, where = tails(rows, summaries)
            print(f"  p99 of the best peer over Gyre's: {mean:.2f}, worst {worst:.2f} at "
                  f"{where.bytes} bytes")


def lines_of(summaries, measurement, versions, absent, options):
    """A dictionary for each row."""
    def rounded(values):
        return {name: round(value, 4) for name, value in sorted(values.items())}
    for row, summary in summaries.items():
        yield {"collective": row.collective, "type": row.element, "in_place": row.in_place,
               "bytes": row.bytes, "ranks": options.ranks, "transport": options.transport,
               "cores": options.cores,
               "memory": options.memory, "cold": options.cold, "written": options.written,
               "rounds": summary.measured,
               "kept": summary.kept, "disturbed": summary.disturbed, "us": rounded(summary.us),
               "p99_us": rounded(summary.p99_us),
               "tail_ratio": summary.tail_ratio and round(summary.tail_ratio, 4),
               "ratio": summary.ratio and round(summary.ratio, 4), "best": summary.best,
               "interval": summary.interval and [round(end, 4) for end in summary.interval],
               "limits_us": rounded(limits_of(measurement, row)), "versions": versions,
               "absent": sorted(absent)}
