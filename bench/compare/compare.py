#!/usr/bin/env python3
"""Gyre beside Open MPI and MPICH: all-reduce of floats on this host, in interleaved rounds, so that
other load on the machine affects all of them alike. Medians over rounds are printed as a table and,
with --record, appended to bench/results/. A ratio is Gyre's median over the peer's: below 1 Gyre is
faster.

    bench/compare/compare.py --build build                      # 2 ranks, shm and tcp
    bench/compare/compare.py --build build --ranks 8 --record   # more ranks than cores: all yield
"""
import argparse
import json
import os
import sys

import limits
from peers import find_peers
from rounds import ROOT, add_arguments, common_keys, measure, provenance


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--peer", nargs="+", metavar="NAME", default=["openmpi", "mpich"],
                        help="openmpi, mpich (default: both, if they are built)")
    parser.add_argument("--results", help="file to append to with --record",
                        default=os.path.join(ROOT, "bench", "results", "all_reduce.jsonl"))
    return parser.parse_args()


def print_table(series, limit, options, transport):
    names = [name for name in series if not series[name].problem]
    peers = [name for name in names if name != "gyre"]
    print(f"\nall-reduce of floats, {options.ranks} ranks, {transport}, out of place, "
          f"{options.memory} memory; medians of {options.rounds} rounds; {limit.text()}")
    print(f"{'bytes':>10}" + "".join(f"  {name + ' p50':>12} {'p99':>10}" for name in names) +
          "".join(f"  {'gyre/' + name:>13}" for name in peers) + f"  {'limit':>10}")
    for key in common_keys(series, names):
        if key[1]:
            continue
        line = f"{key[0]:>10}"
        for name in names:
            line += f"  {series[name].median(key):>12.2f} {series[name].tail(key):>10.2f}"
        for name in peers:
            line += f"  {series['gyre'].median(key) / series[name].median(key):>13.3f}"
        print(line + f"  {limit.microseconds(key[0]):>10.2f}")


def record(series, limit, options, transport):
    common = provenance("bench/compare/compare.py")
    with open(options.results, "a") as file:
        for name, peer in series.items():
            if name == "gyre" or peer.problem:
                continue
            own = series["gyre"]
            for key in common_keys(series, ["gyre", name]):
                file.write(json.dumps({
                    **common, "peer": name, "collective": "all_reduce", "type": "float",
                    "ranks": options.ranks, "bytes": key[0], "p50_us": round(own.median(key), 3),
                    "p99_us": round(own.tail(key), 3),
                    "ratio": round(own.median(key) / peer.median(key), 4),
                    "limit_us": round(limit.microseconds(key[0]), 3), "transport": transport,
                    "in_place": key[1], "memory": options.memory, "rounds": options.rounds,
                    "peer_p50_us": round(peer.median(key), 3),
                    "peer_p99_us": round(peer.tail(key), 3)}) + "\n")


def main():
    options = arguments()
    programs, missing = find_peers(options.build, options.peer, options.memory)
    for text in missing:
        print(text, file=sys.stderr)
    if not programs or programs[0].name != "gyre":
        return 2
    failed = False
    for transport in options.transport:
        limit = limits.Limits(options.ranks, transport)
        series = measure(programs, options, transport)
        for name, one in series.items():
            if one.problem:
                failed = True
                print(f"{name} left out: {one.problem}", file=sys.stderr)
        if series["gyre"].problem:
            continue
        print_table(series, limit, options, transport)
        if options.record:
            record(series, limit, options, transport)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
