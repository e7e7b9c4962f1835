#!/usr/bin/env python3
"""What overlap saves where the link is the limit: two hosts on this machine (network namespaces),
joined by a cable that tc shapes to a rate, with one rank of bench/training/overlap on each.

By default the backward pass takes as long as the reduction alone. Needs root. --record appends to
bench/results/training_overlap.jsonl, --plot draws a picture (matplotlib)."""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench/compare"), str(ROOT / "tests/support")]
import picture  # noqa: E402  pylint: disable=wrong-import-position
import rounds as provenance_of  # noqa: E402  pylint: disable=wrong-import-position
import shaping  # noqa: E402  pylint: disable=wrong-import-position
import two_hosts  # noqa: E402  pylint: disable=wrong-import-position

# Of the rate: below, it is not the link that is measured. Ethernet's and TCP's headers leave 0.956.
LIMIT_SHARE = 0.9


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=str(ROOT / "build"), help="build folder")
    parser.add_argument("--rate", type=shaping.rate, nargs="+", default=["1gbit"],
                        help="rate of the link in each direction, as for tc (default: 1gbit)")
    parser.add_argument("--delay-ms", type=float, default=0,
                        help="delay of the link in each direction, by netem (default: none)")
    parser.add_argument("--compute", nargs="+", default=["sleep"], choices=["sleep", "matrix"],
                        help="kind of the passes (default: sleep); overlap --help says more")
    parser.add_argument("--megabytes", type=float, default=96, help="MiB of gradients")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--backward-ms", default="auto", help="(default: as long as the reduction)")
    parser.add_argument("--forward-ms", default="auto", help="(default: half of the backward pass)")
    parser.add_argument("--bucket-mb", default="25,8,2", help="MiB (default: 25,8,2)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--timeout", type=int, default=900,
                        help="limit for the whole run, in seconds")
    parser.add_argument("--record", action="store_true",
                        help="append to bench/results/training_overlap.jsonl")
    parser.add_argument("--recorded", action="store_true",
                        help="measure nothing; use the newest recorded figures")
    parser.add_argument("--plot", type=picture.file_to_draw, metavar="FILE",
                        help="a picture, as SVG")
    return parser.parse_args()


def why_not():
    """Why it cannot be measured here, or nothing."""
    return two_hosts.why_not() or (None if shutil.which("tc") else "there is no tc")


def shape(hosts, options, link_rate):
    """Both ends of the cable send at this rate."""
    for host in range(2):
        def tc(*words, on=host):
            hosts.call(hosts.on(on, ["tc", "qdisc", *words]))
        place = ["dev", two_hosts.INTERFACE, "root"]
        if options.delay_ms > 0:
            tc("replace", *place, "handle", "1:", "netem", "delay", f"{options.delay_ms}ms",
               "limit", "100000")
            place = ["dev", two_hosts.INTERFACE, "parent", "1:1", "handle", "10:"]
        tc("replace", *place, *shaping.bucket(link_rate))


def start(hosts, options, compute, rank, found):
    command = [f"{options.build}/bench/training/overlap", "--compute", compute,
               "--megabytes", str(options.megabytes), "--layers", str(options.layers),
               "--backward-ms", options.backward_ms, "--forward-ms", options.forward_ms,
               "--bucket-mb", options.bucket_mb, "--rounds", str(options.rounds), "--json", found]
    return subprocess.Popen(hosts.on(rank, command), env=hosts.environment(rank, 2),
                            stdin=subprocess.DEVNULL)


def measure(hosts, ranks, options, compute, link_rate, deadline):
    """What rank 0 found, and what the link carried meanwhile. `ranks` are its processes."""
    shape(hosts, options, link_rate)
    found_file = os.path.join(hosts.folder, "found.json")
    before = hosts.sent_bytes(0)
    print(f"# {link_rate} each way", flush=True)
    ranks[:] = [start(hosts, options, compute, rank, found_file) for rank in range(2)]
    codes = two_hosts.wait_all(ranks, deadline)
    if any(code != 0 for code in codes):
        raise RuntimeError(f"the ranks ended with {codes}; None: not yet")
    found = json.loads(pathlib.Path(found_file).read_text(encoding="utf-8"))
    found |= {"rate": link_rate, "delay_ms": options.delay_ms,
              "congestion": hosts.congestion(), "link_bytes": hosts.sent_bytes(0) - before,
              "link_share": found["sent_gbit_per_s"] * 1e9 / shaping.bits_per_s(link_rate)}
    print(f"# that is {100 * found['link_share']:.1f} % of the link's rate, headers not counted; "
          f"the link carried {found['link_bytes'] / 1e6:.1f} MB from rank 0 for "
          f"{found['reduced_bytes'] / 1e6:.1f} MB that it reduced; {found['congestion']}")
    if found["link_share"] < LIMIT_SHARE:
        print("# so the link was not the limit: something else held the ranks up")
    print(flush=True)
    return found


def record(results):
    rows = []
    for found in results:
        shared = {key: value for key, value in found.items() if key != "ways"}
        rows += [{**shared, **way} for way in found["ways"]]
    provenance_of.append_results("training_overlap", "bench/training/overlap.py", rows)


def recorded():
    """The results of the newest recorded run: the lines of one link and one kind of compute are
    ways of one result."""
    results = {}
    for row in provenance_of.newest_results("training_overlap"):
        results.setdefault((row["compute"], row["rate"]), {**row, "ways": []})["ways"].append(row)
    return list(results.values())


def plot(results, path):
    pyplot = picture.load_pyplot()
    figure, panels = pyplot.subplots(1, len(results), sharey=True, squeeze=False,
                                     figsize=(max(4, picture.WIDTH * len(results) / 2), 4.6))
    for panel, found in zip(panels[0], results):
        draw(panel, found)
    panels[0][0].set_ylabel("milliseconds of a step (median)")
    shorter = [way["shorter"] for found in results for way in found["ways"]
               if way["way"] == "overlapped"]
    figure.suptitle(f"Overlap makes a step {100 * min(shorter):.0f} to {100 * max(shorter):.0f} % "
                    f"shorter where the link is the limit", fontsize=11)
    picture.legend_below(figure, panels[0][0], columns=2)
    picture.save(figure, path)


def draw(panel, found):
    """Bars of compute and of communication that it does not hide."""
    compute_ms = next(way["p50_ms"] for way in found["ways"] if way["way"] == "compute")
    names, hidden, exposed = [], [], []
    for way in found["ways"]:
        size = f"\n{way['bucket_mb']:g} MiB" if way["way"] == "overlapped" else ""
        names.append({"bare": "reduction\nalone", "compute": "passes\nalone"}.get(
            way["way"], way["way"] + size))
        hidden.append(0 if way["way"] == "bare" else compute_ms)
        exposed.append(way["p50_ms"] - hidden[-1])
    panel.bar(names, hidden, color="C0", label="forward and backward pass")
    panel.bar(names, exposed, bottom=hidden, color="C1", label="exposed communication")
    for place, way in enumerate(found["ways"]):
        if way["way"] == "overlapped":
            panel.annotate(f"{-100 * way['shorter']:.0f} %", (place, way["p50_ms"]), ha="center",
                           xytext=(0, 3), textcoords="offset points", fontsize=9)
    panel.tick_params(axis="x", labelsize=8, labelrotation=40)
    panel.set_ylim(0, 1.1 * max(way["p50_ms"] for way in found["ways"]))
    panel.set_title(f"{found['rate']} ({100 * found['link_share']:.0f} % used), "
                    f"{found['bytes'] / 2 ** 20:.0f} MiB; compute: {found['compute']}",
                    fontsize=10)


def main():
    options = arguments()
    if options.recorded:
        if options.plot:
            plot(recorded(), options.plot)
        return
    if reason := why_not():
        sys.exit(f"overlap.py: {reason}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    deadline = time.monotonic() + options.timeout
    hosts = two_hosts.TwoHosts(f"overlap{os.getpid()}", options.timeout + 60)
    ranks = []
    try:
        results = [measure(hosts, ranks, options, compute, link_rate, deadline)
                   for compute in options.compute for link_rate in options.rate]
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"overlap.py: {error}")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hosts.end()
        for rank in ranks:
            rank.wait()
    if options.record:
        record(results)
    if options.plot:
        plot(results, options.plot)


if __name__ == "__main__":
    main()
