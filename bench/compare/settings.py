#!/usr/bin/env python3
"""One collective with one setting beside another, in interleaved rounds. By default these are all
algorithms and protocols; the shipped table of choices (lib/tune/table.cc) rests on that. A ratio is
the median without a setting over the best median, with its 95 % interval: 1 if no setting is
faster.

    bench/compare/settings.py broadcast                          # 2 ranks, shm and tcp
    bench/compare/settings.py alltoall --ranks 8 --transport tcp -e 64K --record
    bench/compare/settings.py all_reduce --try GYRE_CHECK_CALLS=0 -e 8 --rounds 15
    bench/compare/settings.py all_reduce --try LD_LIBRARY_PATH=OLD/lib/api    # of another build
"""
import argparse
import json
import os
import subprocess
import sys

from perf_programs import Gyre
from rounds import (ROOT, add_arguments, collective_of, common_keys, measure, parse_size,
                    provenance, ratio_interval)

# As the perf programs are called.
COLLECTIVES = ["all_gather", "all_reduce", "alltoall", "broadcast", "gather", "reduce",
               "reduce_scatter", "scatter"]
PROTOCOLS = {"shm": ("LL", "Simple", "Direct"), "tcp": ("Simple",)}
PLAIN = "plain"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("collective", type=collective_of(COLLECTIVES),
                        help=", ".join(COLLECTIVES))
    add_arguments(parser, memory="registered")
    parser.add_argument("--try", nargs="+", dest="tried", metavar="NAME=VALUE[,NAME=VALUE]",
                        help="these settings instead of each algorithm and protocol")
    parser.add_argument("--line-most", type=parse_size, default="32K", metavar="SIZE",
                        help="largest size at which LL is tried; beyond it, LL never wins")
    parser.add_argument("--results", help="file to append to with --record",
                        default=os.path.join(ROOT, "bench", "results", "settings.jsonl"))
    return parser.parse_args()


def algorithms_for(build, collective):
    listed = subprocess.run([os.path.join(build, "tools", "gyre"), "plan", "--list", "--json", "-c",
                             collective], check=True, capture_output=True, text=True, timeout=60)
    return [algorithm["algorithm"] for algorithm in json.loads(listed.stdout)]


def candidates(options, transport):
    program = options.collective + "_perf"
    found = [Gyre(options.build, program, PLAIN, memory=options.memory)]
    if options.tried:
        for text in options.tried:
            settings = dict(word.split("=", 1) for word in text.split(","))
            found.append(Gyre(options.build, program, text, settings, options.memory))
        return found
    # The programs' own calls keep their choice.
    only = options.collective.replace("_", "") + ":"
    for algorithm in algorithms_for(options.build, options.collective):
        for protocol in PROTOCOLS[transport]:
            found.append(Gyre(options.build, program, f"{algorithm}/{protocol}",
                              {"GYRE_ALGO": only + algorithm, "GYRE_PROTO": only + protocol},
                              options.memory))
            if protocol == "LL":
                found[-1].max_bytes = options.line_most
    return found


def ranked(series, key):
    """(median, name) of every setting, the fastest first."""
    return sorted((one.median(key), name) for name, one in series.items() if key in one.p50)


def print_table(series, options, transport):
    print(f"\n{options.collective} of floats, {options.ranks} ranks, {transport}, out of place; "
          f"medians of {options.rounds} rounds in us")
    print(f"{'bytes':>10}  {'plain':>10}  {'ratio':>6}  {'95 % interval':>14}  fastest settings")
    for key in common_keys(series, [PLAIN]):
        if key[1]:
            continue
        best = [entry for entry in ranked(series, key) if entry[1] != PLAIN]
        if not best:
            continue
        plain = series[PLAIN].median(key)
        shown = "  ".join(f"{name} {time:.2f}" for time, name in best[:4])
        low, high = ratio_interval(series[PLAIN], series[best[0][1]], key)
        print(f"{key[0]:>10}  {plain:>10.2f}  {plain / best[0][0]:>6.3f}  {low:>6.3f}..{high:.3f}  "
              f"{shown}")


def record(series, options, transport):
    common = provenance("bench/compare/settings.py")
    with open(options.results, "a") as file:
        for key in common_keys(series, [PLAIN]):
            for time, name in ranked(series, key):
                interval = ratio_interval(series[PLAIN], series[name], key)
                file.write(json.dumps({
                    **common, "peer": name, "collective": options.collective, "type": "float",
                    "ranks": options.ranks, "bytes": key[0], "transport": transport,
                    "in_place": key[1], "memory": options.memory, "rounds": options.rounds,
                    "p50_us": round(series[PLAIN].median(key), 3),
                    "p99_us": round(series[PLAIN].tail(key), 3),
                    "peer_p50_us": round(time, 3),
                    "ratio": round(series[PLAIN].median(key) / time, 4),
                    "interval": [round(end, 4) for end in interval]}) + "\n")


def main():
    options = arguments()
    failed = False
    for transport in options.transport:
        series = measure(candidates(options, transport), options, transport)
        for name, one in series.items():
            if one.problem:
                failed = True
                print(f"{name} left out: {one.problem}", file=sys.stderr)
        print_table(series, options, transport)
        if options.record:
            record(series, options, transport)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
