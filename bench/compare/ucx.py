#!/usr/bin/env python3
"""gyreSend and gyreRecv by the transport ucx beside ucx_perftest (Debian's ucx-utils), one way,
with the same UCX, UCX_TLS, devices and error mode, in interleaved rounds on this host.

    bench/compare/ucx.py --tls tcp --devices lo
    bench/compare/ucx.py --tls posix,cma --rounds 9 --record

Latency is the median half of a round trip; of ucx_perftest that of tag_lat and ucp_am_lat,
whichever is shorter. Bandwidth is that of sends one after the other; of ucx_perftest that of tag_bw
and ucp_am_bw, whichever is larger.
"""
import argparse
import os
import shutil
import subprocess
import sys
import time

import one_way
from rounds import ROOT, append_results, parse_size

PORT = 13341


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--tls", default="tcp", help="UCX_TLS of both")
    parser.add_argument("--devices", default="lo", help="UCX_NET_DEVICES of both")
    parser.add_argument("--sizes", nargs="+", type=parse_size, metavar="SIZE",
                        default=[parse_size(text) for text in ("8", "4K", "64K", "1M", "4M")])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--perftest", default="ucx_perftest", help="the program")
    parser.add_argument("--record", action="store_true", help="append to bench/results/ucx.jsonl")
    return parser.parse_args()


def environment(options):
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("GYRE_", "UCX_"))}
    return {**kept, "UCX_TLS": options.tls, "UCX_NET_DEVICES": options.devices,
            "UCX_WARN_UNUSED_ENV_VARS": "n"}


def perftest(options, test, size):
    """The last line of -v: iterations, percentile, then averages and totals."""
    trips, windows, sends = one_way.counts(size)
    turns = trips if test.endswith("lat") else windows * sends
    words = [options.perftest, "-t", test, "-s", str(size), "-n", str(turns), "-w",
             str(turns // 10 + 3), "-p", str(PORT), "-f", "-v"]
    server = subprocess.Popen(words, env=environment(options), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.2)
            client = subprocess.run([*words, "127.0.0.1"], env=environment(options),
                                    capture_output=True, text=True, timeout=300)
            if client.returncode == 0:
                break
        else:
            sys.exit(f"{' '.join(words)}: {client.stdout}{client.stderr}")
        server.wait(60)
    finally:
        server.kill()
    return [float(word) for word in client.stdout.strip().splitlines()[-1].split(",")]


def peer(options, size):
    """(microseconds, MB/s) of ucx_perftest, the better of its two kinds of messages."""
    latency = min(perftest(options, test, size)[1] for test in ("tag_lat", "ucp_am_lat"))
    megabytes = max(perftest(options, test, size)[5] for test in ("tag_bw", "ucp_am_bw"))
    return latency, megabytes * 1.048576


def main():
    options = arguments()
    if shutil.which(options.perftest) is None:
        sys.exit(f"there is no {options.perftest}: install ucx-utils")
    rows = []
    print(f"UCX_TLS={options.tls}, UCX_NET_DEVICES={options.devices}; medians of "
          f"{options.rounds} rounds")
    print(f"{'bytes':>10} {'gyre us':>10} {'ucx us':>10} {'ratio':>6}   "
          f"{'gyre MB/s':>10} {'ucx MB/s':>10} {'ratio':>6}")
    for size in options.sizes:
        steps = [lambda: one_way.gyre(options.build, {**environment(options),
                                                      "GYRE_TRANSPORT": "ucx"}, size),
                 lambda: peer(options, size)]
        (us, speed), (peer_us, peer_speed) = one_way.in_turns(steps, options.rounds)
        print(f"{size:>10} {us:>10.2f} {peer_us:>10.2f} {us / peer_us:>6.2f}   {speed:>10.1f} "
              f"{peer_speed:>10.1f} {speed / peer_speed:>6.2f}", flush=True)
        rows.append({"tls": options.tls, "devices": options.devices, "bytes": size,
                     "rounds": options.rounds, "half_round_trip_us": round(us, 3),
                     "peer_half_round_trip_us": round(peer_us, 3),
                     "megabytes_per_s": round(speed, 1),
                     "peer_megabytes_per_s": round(peer_speed, 1)})
    if options.record:
        append_results("ucx", "bench/compare/ucx.py", rows)


if __name__ == "__main__":
    main()
