#!/usr/bin/env python3
"""Sends one way over TCP beside a plain socket, and beside iperf3 with one, between two ranks of
this host, in interleaved rounds. `tools/dev compare --transport tcp` has the collectives.

    bench/compare/tcp.py --rounds 9    # prints; --record appends
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

import one_way
from rounds import ROOT, append_results, parse_size

IPERF_PORT = 13342


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program and size")
    parser.add_argument("--sizes", nargs="+", type=parse_size, metavar="SIZE",
                        default=[parse_size(text) for text in ("8", "4K", "64K", "1M", "16M")])
    parser.add_argument("--record", action="store_true", help="append to bench/results/tcp.jsonl")
    return parser.parse_args()


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
    for size in options.sizes:
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
    rows = one_way_rows(options)
    if options.record:
        append_results("tcp", "bench/compare/tcp.py", rows)


if __name__ == "__main__":
    main()
