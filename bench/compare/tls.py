#!/usr/bin/env python3
"""gyreSend and gyreRecv over TCP in clear and under TLS (GYRE_TCP_SECURITY=tls), and TLS's cipher
alone, in interleaved rounds on this host. A byte under TLS costs as much as a byte over TCP and a
byte of the cipher: the limit is 1 / (1/tcp + 1/cipher).

    bench/compare/tls.py
    bench/compare/tls.py --rounds 9 --record

Each rate is that of windows of sends, one way. The cipher's is the lower one of two processes: one
encrypts records of 16 KiB and the other decrypts them, at the same time.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from rounds import ROOT, append_results, parse_size

WAYS = ("tcp", "tls", "cipher")
# Round trips, windows, and bytes of a window.
TRIPS, WINDOWS, WINDOW_BYTES = 20, 15, 64 << 20
CIPHER_S = 0.4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--sizes", nargs="+", type=parse_size, metavar="SIZE",
                        default=[parse_size(text) for text in ("64K", "256K", "1M", "4M", "16M")])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="append to bench/results/tls.jsonl")
    return parser.parse_args()


def lines_of(options, words, settings):
    """The lines of JSON that a job of two ranks prints."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
    command = [os.path.join(options.build, "tools", "gyre"), "run", "-n", "2",
               os.path.join(options.build, "bench", "compare", words[0]), *map(str, words[1:])]
    done = subprocess.run(command, env={**kept, **settings}, capture_output=True, text=True,
                          timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if "{" in line]


def rate(options, way, size):
    """MB/s"""
    if way == "cipher":
        ranks = lines_of(options, ["tls_cipher", size, CIPHER_S], {})
        return min(rank["megabytes_per_s"] for rank in ranks)
    settings = {"GYRE_TRANSPORT": "tcp", "GYRE_SOCKET_IFNAME": "lo",
                "GYRE_TCP_SECURITY": "tls" if way == "tls" else "ticket"}
    words = ["one_way", size, TRIPS, WINDOWS, max(2, WINDOW_BYTES // size)]
    return lines_of(options, words, settings)[0]["megabytes_per_s"]


def main():
    options = arguments()
    rows = []
    print(f"MB/s one way, medians of {options.rounds} rounds")
    print(f"{'bytes':>10} {'tcp':>9} {'cipher':>9} {'limit':>9} {'tls':>9} {'of limit':>9}")
    for size in options.sizes:
        rates = {way: [] for way in WAYS}
        for turn in range(options.rounds):
            shift = turn % len(WAYS)
            for way in WAYS[shift:] + WAYS[:shift]:
                rates[way].append(rate(options, way, size))
        tcp, tls, cipher = (statistics.median(rates[way]) for way in WAYS)
        limit = 1 / (1 / tcp + 1 / cipher)
        print(f"{size:>10} {tcp:>9.0f} {cipher:>9.0f} {limit:>9.0f} {tls:>9.0f} "
              f"{tls / limit:>9.3f}", flush=True)
        rows.append({"bytes": size, "rounds": options.rounds, "tcp_megabytes_per_s": round(tcp, 1),
                     "cipher_megabytes_per_s": round(cipher, 1),
                     "tls_megabytes_per_s": round(tls, 1), "of_limit": round(tls / limit, 4)})
    if options.record:
        append_results("tls", "bench/compare/tls.py", rows)


if __name__ == "__main__":
    main()
