#!/usr/bin/env python3
"""Gyre over TCP beside Open MPI's TCP, Gloo and plain sockets, on two ranks of this host, in
interleaved rounds: all-reduce of floats, and sends one way, also beside iperf3 with one socket.

    bench/compare/tcp.py --build build                       # prints; --record appends
    bench/compare/tcp.py --gloo ~/gloo ~/gloo/build          # Gloo's sources and build folder
    bench/compare/tcp.py --only one-way --rounds 9

Plain sockets move the bytes of an all-reduce both ways at once over one connection (raw_move), and
also add them (raw_sum). Beside each goal the script says whether it holds in this run.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time

import one_way
from peers import Gloo, Raw, find_peers
from rounds import (ROOT, add_sizes, append_results, common_keys, measure, parse_size,
                    ratio_interval)

IPERF_PORT = 13342


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--gloo", nargs="+", metavar="FOLDER", help="where Gloo's headers and "
                        "libgloo.a are: a prefix, or its sources and its build folder")
    parser.add_argument("--only", choices=["all-reduce", "one-way"])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program and size")
    add_sizes(parser, "8", 2)
    parser.add_argument("--one-way-sizes", nargs="+", type=parse_size, metavar="SIZE",
                        default=[parse_size(text) for text in ("8", "4K", "64K", "1M", "16M")])
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one run")
    parser.add_argument("--record", action="store_true", help="append to bench/results/tcp.jsonl")
    options = parser.parse_args()
    options.ranks, options.memory = 2, "malloc"
    return options


# ------------------------------------------------------------------ all-reduce

def programs_of(options):
    found, missing = find_peers(options.build, options.memory)
    for text in missing:
        print(text, file=sys.stderr)
    if not found or found[0].name != "gyre":
        sys.exit(2)
    if options.gloo:
        found.append(Gloo(options.gloo))
    return found + [Raw(options.build, "sum"), Raw(options.build, "move")]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def goals(medians):
    """(what, whether it holds, the figure) of each goal, from {size: {name: microseconds}}."""
    def ratios(peer):
        return {size: row[peer] / row["gyre"] for size, row in medians.items() if peer in row}
    if found := ratios("openmpi"):
        slow = [size for size, ratio in found.items() if ratio < 1]
        yield "no size slower than Open MPI", not slow, ", ".join(map(str, slow)) or "none"
        mean = geometric_mean(found.values())
        yield "Open MPI, geometric mean >= 1.5", mean >= 1.5, f"{mean:.2f}"
    if found := ratios("gloo"):
        mean = geometric_mean(found.values())
        yield "Gloo, geometric mean >= 3", mean >= 3, f"{mean:.2f}"
    found = ratios("raw_sum")
    if 8 in found:
        yield "8 B <= 1.25 of plain sockets", found[8] >= 1 / 1.25, f"{1 / found[8]:.3f}"
    if large := {size: ratio for size, ratio in found.items() if size >= 1 << 20}:
        least = min(large, key=large.get)
        yield ("from 1 MiB on >= 0.9 of plain sockets that add", large[least] >= 0.9,
               f"{large[least]:.3f} at {least}")


def all_reduce(options):
    series = measure(programs_of(options), options, "tcp")
    for name, one in series.items():
        if one.problem:
            print(f"{name} left out: {one.problem}", file=sys.stderr)
    names = [name for name in series if not series[name].problem]
    if "gyre" not in names:
        sys.exit(1)
    others = [name for name in names if name != "gyre"]
    print(f"\nall-reduce of floats, 2 ranks, tcp, out of place; medians of {options.rounds} rounds "
          "in us; ratios: theirs / Gyre's")
    print(f"{'bytes':>10}  {'gyre':>10}" + "".join(f"  {name:>10}  {'ratio':>6}"
                                                   for name in others))
    rows, medians = [], {}
    for key in common_keys(series, names):
        size, in_place = key
        own = series["gyre"].median(key)
        line = f"{size:>10}  {own:>10.2f}"
        for name in others:
            theirs = series[name].median(key)
            line += f"  {theirs:>10.2f}  {theirs / own:>6.3f}"
            low, high = ratio_interval(series[name], series["gyre"], key)
            rows.append({"what": "all_reduce", "bytes": size, "in_place": in_place, "peer": name,
                         "rounds": options.rounds, "p50_us": round(own, 3),
                         "p99_us": round(series["gyre"].tail(key), 3),
                         "peer_p50_us": round(theirs, 3),
                         "peer_p99_us": round(series[name].tail(key), 3),
                         "faster": round(theirs / own, 4),
                         "interval": [round(low, 4), round(high, 4)]})
        if not in_place:
            medians[size] = {name: series[name].median(key) for name in names}
            print(line)
    for what, holds, figure in goals(medians):
        print(f"{'holds' if holds else 'FAILS'}  {what}: {figure}")
    return rows


# ------------------------------------------------------------------ one way

def iperf(seconds=1):
    """MB/s of iperf3 with one socket, one way; Reno, which over loopback is its fastest."""
    server = subprocess.Popen(["iperf3", "-s", "-1", "-p", str(IPERF_PORT), "-B", "127.0.0.1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.1)
            client = subprocess.run(
                ["iperf3", "-c", "127.0.0.1", "-p", str(IPERF_PORT), "-t", str(seconds), "-C",
                 "reno", "-J"], capture_output=True, text=True, timeout=60, check=False)
            if client.returncode == 0:
                return (json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"] / 8e6,)
        sys.exit(f"iperf3: {client.stdout}{client.stderr}")
    finally:
        server.kill()
        server.wait()


def one_way_rows(options):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
    raw = os.path.join(options.build, "bench", "compare", "raw_one_way")
    has_iperf = shutil.which("iperf3") is not None
    print(f"\nsends one way; medians of {options.rounds} rounds; ratios: Gyre's / theirs")
    print(f"{'bytes':>10} {'gyre us':>9} {'raw us':>9} {'ratio':>6}   {'gyre MB/s':>9} "
          f"{'raw MB/s':>9} {'ratio':>6} {'iperf3':>9} {'ratio':>6}")
    rows = []
    for size in options.one_way_sizes:
        steps = [lambda: one_way.gyre(options.build, {**environment, "GYRE_TRANSPORT": "tcp"},
                                      size),
                 lambda: one_way.run([raw], environment, size)]
        if has_iperf:
            steps.append(iperf)
        (us, speed), (raw_us, raw_speed), *rest = one_way.in_turns(steps, options.rounds)
        row = {"what": "one_way", "bytes": size, "rounds": options.rounds,
               "half_round_trip_us": round(us, 3), "raw_half_round_trip_us": round(raw_us, 3),
               "megabytes_per_s": round(speed, 1), "raw_megabytes_per_s": round(raw_speed, 1)}
        line = (f"{size:>10} {us:>9.2f} {raw_us:>9.2f} {us / raw_us:>6.2f}   {speed:>9.1f} "
                f"{raw_speed:>9.1f} {speed / raw_speed:>6.2f}")
        if rest:
            row["iperf3_megabytes_per_s"] = round(rest[0][0], 1)
            line += f" {rest[0][0]:>9.1f} {speed / rest[0][0]:>6.2f}"
        print(line, flush=True)
        rows.append(row)
    return rows


def main():
    options = arguments()
    rows = []
    if options.only != "one-way":
        rows += all_reduce(options)
    if options.only != "all-reduce":
        rows += one_way_rows(options)
    if options.record:
        append_results("tcp", "bench/compare/tcp.py", rows)


if __name__ == "__main__":
    main()
