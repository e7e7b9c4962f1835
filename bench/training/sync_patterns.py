#!/usr/bin/env python3
"""Ring all-reduce beside a parameter server, where the links are the limit: 2 to 16 hosts (network
namespaces) with a link of a given rate each, and one rank of bench/training/sync_patterns on each.

Beside each time is its formula, copies * K: K is the time in which one plain TCP connection carries
the model over such a link, measured before and after the ranks run. The copies are 2 (N - 1) / N
for the ring, 2 (N - 1) for a server that has all gradients before it sends any parameter, and N - 1
for a star that does both at once. Needs root. --record appends to
bench/results/training_sync.jsonl, --plot draws a picture (matplotlib)."""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench/compare"), str(ROOT / "tests/support")]
import picture  # noqa: E402  pylint: disable=wrong-import-position
import rounds  # noqa: E402  pylint: disable=wrong-import-position
import shaping  # noqa: E402  pylint: disable=wrong-import-position
import two_hosts  # noqa: E402  pylint: disable=wrong-import-position

PLAIN_EXCHANGES = 3  # before the ranks run, and as many after them
PLAIN_PORT = 29778
WITHIN = 0.1
NAMES = {"server": "parameter server: all gradients, then all parameters",
         "star": "server that receives and sends at once", "ring": "ring all-reduce (Gyre)"}
FORMULAS = {"server": "2 (N - 1) K", "star": "(N - 1) K", "ring": "2 (N - 1) K / N"}
COLORS = {"server": "#4c72b0", "star": "#55a868", "ring": "#c44e52"}
MARKERS = {"server": "s", "star": "^", "ring": "o"}
# Plain TCP, as a limit: the receiver answers with one byte when it has all.
RECEIVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
    listener.settimeout(float(sys.argv[4]))
    print("listens", flush=True)
    connection, _ = listener.accept()
    connection.settimeout(float(sys.argv[4]))
    missing, buffer = int(sys.argv[3]), bytearray(1 << 20)
    while missing > 0:
        got = connection.recv_into(buffer)
        if got == 0:
            sys.exit("the sender closed early")
        missing -= got
    connection.sendall(b"!")
"""
SENDER = """
import socket, sys, time
data = bytes(int(sys.argv[3]))
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[4])) as connection:
    began = time.monotonic()
    connection.sendall(data)
    if connection.recv(1) != b"!":
        sys.exit("the receiver closed early")
    print(time.monotonic() - began)
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"), help="build folder")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16], metavar="N")
    parser.add_argument("--rate", type=shaping.rate, default="100mbit",
                        help="rate of each host's link in each direction, as for tc")
    parser.add_argument("--megabytes", type=float, default=16, help="MiB of the model")
    parser.add_argument("--piece-kib", type=float, default=16,
                        help="KiB that the server takes from each rank at a time")
    parser.add_argument("--rounds", type=int, default=5, help="syncs of each pattern, in turn")
    parser.add_argument("--congestion", metavar="NAME",
                        help="TCP's congestion control; default: this machine's")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for each number of ranks")
    parser.add_argument("--record", action="store_true",
                        help="append to bench/results/training_sync.jsonl")
    parser.add_argument("--recorded", action="store_true",
                        help="measure nothing; use the newest recorded figures")
    parser.add_argument("--plot", type=picture.file_to_draw, metavar="FILE",
                        help="a picture, as SVG")
    options = parser.parse_args()
    if min(options.ranks) < 2 or options.rounds < 1:
        parser.error("--ranks is at least 2, --rounds 1")
    return options


def why_not():
    """Why it cannot be measured here, or nothing."""
    return two_hosts.why_not() or (None if shutil.which("tc") else "there is no tc")


def formula_ms(pattern, ranks, copy_ms):
    """The claim: what a sync takes if a link carries the model once in copy_ms."""
    copies = {"ring": 2 * (ranks - 1) / ranks, "server": 2 * (ranks - 1), "star": ranks - 1}
    return copies[pattern] * copy_ms


# ------------------------------------------------------------------ the measurement

def plain_ms(hosts, size):
    """One TCP connection carries so many bytes from host 1 to host 0."""
    words = [hosts.addresses[0], str(PLAIN_PORT), str(size), "60"]
    with subprocess.Popen(hosts.on(0, [sys.executable, "-c", RECEIVER, *words]), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as receiver:
        if receiver.stdout.readline() != "listens\n":
            raise RuntimeError("the plain receiver does not listen")
        done = subprocess.run(hosts.on(1, [sys.executable, "-c", SENDER, *words]), text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        if receiver.wait(60) != 0 or done.returncode != 0:
            raise RuntimeError(f"the plain exchange failed: {done.stderr.strip()}")
    return 1e3 * float(done.stdout)


def start(hosts, options, ranks, rank, found):
    command = [f"{options.build}/bench/training/sync_patterns", "--megabytes",
               str(options.megabytes), "--piece-kib", str(options.piece_kib),
               "--rounds", str(options.rounds), "--json", found]
    environment = hosts.environment(rank, ranks) | {"GYRE_ALGO": "allreduce:ring"}
    return subprocess.Popen(hosts.on(rank, command), env=environment, stdin=subprocess.DEVNULL,
                            stdout=sys.stdout if rank == 0 else subprocess.DEVNULL)


def measure(hosts, processes, options):
    """What rank 0 found; `processes` are the ranks, for whoever ends early."""
    if options.congestion:
        hosts.set_congestion(options.congestion)
    hosts.shape([options.rate])
    print(f"# {hosts.hosts} hosts, {options.rate} each way, {hosts.congestion()}", flush=True)
    found_file = os.path.join(hosts.folder, "found.json")
    size = int(options.megabytes * (1 << 20))
    plain = [plain_ms(hosts, size) for _ in range(PLAIN_EXCHANGES)]
    before = hosts.sent_bytes(0)
    processes[:] = [start(hosts, options, hosts.hosts, rank, found_file)
                    for rank in range(hosts.hosts)]
    codes = two_hosts.wait_all(processes, time.monotonic() + options.timeout)
    if any(code != 0 for code in codes):
        raise RuntimeError(f"the ranks ended with {codes}; None: not within {options.timeout} s")
    link_bytes = hosts.sent_bytes(0) - before
    plain += [plain_ms(hosts, size) for _ in range(PLAIN_EXCHANGES)]
    found = json.loads(pathlib.Path(found_file).read_text(encoding="utf-8"))
    found |= {"rate": options.rate, "congestion": hosts.congestion(), "link_bytes": link_bytes,
              "plain_ms": [round(ms, 3) for ms in plain]}
    rows = list(results(found))
    print_table(rows)
    return rows


def results(found):
    """A row for each pattern."""
    ranks = found["ranks"]
    shared = {key: value for key, value in found.items() if key != "patterns"}
    copy_ms = statistics.median(found["plain_ms"])
    by_name = {one["pattern"]: one for one in found["patterns"]}
    ring = series(by_name["ring"]["ms"])
    for name, one in by_name.items():
        formula = formula_ms(name, ranks, copy_ms)
        own = series(one["ms"])
        yield {**shared, "pattern": name, "copies": one["copies"], "p50_ms": one["p50_ms"],
               "ms": [round(ms, 3) for ms in one["ms"]], "formula_ms": formula,
               "over_formula": own.median(KEY) / formula,
               "over_formula_interval": interval(own, series([formula] * len(one["ms"]))),
               "over_ring": own.median(KEY) / ring.median(KEY),
               "over_ring_interval": interval(own, ring)}


KEY = "sync"  # of the only measurement in a series


def series(times):
    found = rounds.Series()
    found.p50[KEY] = times
    return found


def interval(first, second):
    return [round(end, 4) for end in rounds.ratio_interval(first, second, KEY)]


def print_table(rows):
    copy_ms = statistics.median(rows[0]["plain_ms"])
    goodput = 8e-3 * rows[0]["bytes"] / copy_ms
    print(f"# K = {copy_ms:.1f} ms by plain TCP, {goodput:.1f} Mbit/s; rank 0's link sent "
          f"{rows[0]['link_bytes'] / 1e6:.1f} MB")
    print(f"{'ranks':>5}  {'pattern':<8} {'median ms':>10} {'formula ms':>10} {'ratio':>7} "
          f"{'95 % interval':>15}  {'over ring':>9} {'95 % interval':>16}  within {WITHIN:.0%}")
    for row in rows:
        low, high = row["over_formula_interval"]
        least, most = row["over_ring_interval"]
        within = "yes" if abs(row["over_formula"] - 1) <= WITHIN else "NO"
        print(f"{row['ranks']:>5}  {row['pattern']:<8} {row['p50_ms']:>10.1f} "
              f"{row['formula_ms']:>10.1f} {row['over_formula']:>7.3f} {low:>7.3f}..{high:<6.3f}  "
              f"{row['over_ring']:>9.2f} {least:>7.2f}..{most:<7.2f}  {within}")
    print(flush=True)


# ------------------------------------------------------------------ the picture

def plot(rows, path):
    """Points are measured, lines are formulas."""
    pyplot = picture.load_pyplot()
    pyplot.rcParams["font.size"] = 11
    figure, axes = pyplot.subplots(figsize=(picture.WIDTH, 5.4))
    sizes = sorted({row["ranks"] for row in rows})
    for name, color in COLORS.items():
        draw(axes, [row for row in rows if row["pattern"] == name], name, color)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    picture.plain_ticks(axes.xaxis, sizes)
    seconds = [row["p50_ms"] / 1e3 for row in rows]
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    axes.set_ylim(min(seconds) / 1.25, 1.25 * max(seconds))
    picture.plain_ticks(axes.yaxis, [tick for tick in ticks
                                     if axes.get_ylim()[0] <= tick <= axes.get_ylim()[1]])
    axes.grid(color="0.88", zorder=-2)
    axes.set(xlabel="ranks N, each on a host of its own", ylabel="seconds for one sync (median)")
    figure.suptitle(title(rows), fontsize=12)
    figure.tight_layout(rect=(0, 0.19, 1, 1))
    handles, labels = axes.get_legend_handles_labels()  # a pattern, its formula, the next one, ...
    figure.legend(handles[::2] + handles[1::2], labels[::2] + labels[1::2], loc="lower center",
                  ncols=2, frameon=False, fontsize=9.5, bbox_to_anchor=(0.5, 0.06))
    figure.text(0.5, 0.012, source(rows), ha="center", fontsize=8, color="0.3")
    picture.save(figure, path)


def draw(axes, rows, name, color):
    rows = sorted(rows, key=lambda row: row["ranks"])
    sizes = [row["ranks"] for row in rows]
    copy_s = statistics.median(copy for row in rows for copy in row["plain_ms"]) / 1e3
    ends = min(sizes), max(sizes)
    steps = [ends[0] * (ends[1] / ends[0]) ** (step / 100) for step in range(101)]
    axes.plot(sizes, [row["p50_ms"] / 1e3 for row in rows], MARKERS[name], color=color,
              label=NAMES[name], zorder=3)
    axes.plot(steps, [formula_ms(name, ranks, copy_s) for ranks in steps], color=color,
              linewidth=1.1, label=f"formula: {FORMULAS[name]}")


def title(rows):
    most = max(row["ranks"] for row in rows)
    server = next(row for row in rows if row["ranks"] == most and row["pattern"] == "server")
    return (f"On {most} ranks a ring syncs a model {server['over_ring']:.0f} times as fast as a "
            "parameter server")


def source(rows):
    row = rows[0]
    copy_ms = statistics.median(copy for row in rows for copy in row["plain_ms"])
    return (f"K = {copy_ms / 1e3:.2f} s: in it plain TCP carries the {row['bytes'] / 2**20:g} MiB "
            f"of the model over one link ({row['rate']} each way, by tc)\n{row['machine']}; "
            f"{row['time'][:10]}, commit {row['commit']}; {row['rounds']} interleaved rounds")


def main():
    options = arguments()
    if not options.recorded:
        rows = measure_all(options)
        origin = rounds.provenance("bench/training/sync_patterns.py")
        if options.record:
            rounds.append_results("training_sync", "bench/training/sync_patterns.py", rows)
        rows = [{**origin, **row} for row in rows]
    else:
        rows = rounds.newest_results("training_sync")
    if options.plot:
        plot(rows, options.plot)


def measure_all(options):
    if reason := why_not():
        sys.exit(f"sync_patterns.py: {reason}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    return [row for ranks in options.ranks for row in measure_on(ranks, options)]


def measure_on(ranks, options):
    processes = []
    hosts = two_hosts.SwitchedHosts(f"sync{os.getpid()}n{ranks}", ranks, options.timeout + 300)
    try:
        return measure(hosts, processes, options)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"sync_patterns.py: {error}")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hosts.end()
        for process in processes:
            process.wait()


if __name__ == "__main__":
    main()
