#!/usr/bin/env python3
"""A connection over several NICs: all-reduce and sendrecv of two hosts over each of their cables
alone, and over all of them with a socket for each (GYRE_TCP_SOCKETS), in interleaved rounds. Hosts
are network namespaces. tc shapes each cable to a rate, in both directions.

    bench/compare/nics.py                        # as root; a cable of 1 Gbit/s and one of 2
    bench/compare/nics.py --rates 100mbit,100mbit,100mbit -b 1M -e 1M

The limit of a time: a rank sends and receives all bytes, and the cables together carry them at the
sum of their rates, less the headers."""
import argparse
import os
import pathlib
import subprocess
import sys

import shaped_hosts
from perf_programs import Gyre
from rounds import ROOT, Series, add_sizes, append_results, sizes_of
import shaping  # shaped_hosts has put their folder there
import two_hosts

ALL = "all"


def link_rates(text):
    """One for each cable."""
    rates = [shaping.rate(word) for word in text.split(",")]
    if not 2 <= len(rates) <= 8:
        raise argparse.ArgumentTypeError("two to eight rates")
    return rates


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--rates", type=link_rates, default="1gbit,2gbit", metavar="RATE,RATE...",
                        help="rate of each cable, as for tc")
    parser.add_argument("--program", nargs="+", default=["all_reduce_perf", "sendrecv_perf"],
                        choices=["all_reduce_perf", "sendrecv_perf"])
    parser.add_argument("--congestion", metavar="NAME",
                        help="TCP's congestion control; default: this machine's")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each way and size")
    add_sizes(parser, "1M", 4)
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one run")
    parser.add_argument("--record", action="store_true", help="append to bench/results/nics.jsonl")
    options = parser.parse_args()
    if options.stepfactor < 2 or options.rounds < 1:
        parser.error("--stepfactor is at least 2, and --rounds 1")
    return options


def settings_of(way, cables):
    named = cables if way == ALL else [way]
    return {"GYRE_TRANSPORT": "tcp", "GYRE_SOCKET_IFNAME": "=" + ",".join(named),
            "GYRE_TCP_SOCKETS": str(len(named))}


def run_once(hosts, options, program, way):
    """Rows of the results of all sizes: a process on each host, which end with it at the latest."""
    rows_file, output = (os.path.join(hosts.folder, name) for name in ("rows.json", "output"))
    pathlib.Path(rows_file).unlink(missing_ok=True)
    command = [Gyre(options.build, program).program, "-b", str(options.minbytes), "-e",
               str(options.maxbytes), "-f", str(options.stepfactor), "-n", "10", "-w", "2", "-c",
               "0", "--stats", "--device", "host", "--plain_memory", "-J", rows_file]
    processes = []
    with open(output, "w", encoding="utf-8") as file:
        for rank in range(2):
            environment = hosts.environment(rank, 2) | settings_of(way, hosts.cables)
            processes.append(subprocess.Popen(hosts.on(rank, command), env=environment,
                                              stdout=file, stderr=file, stdin=subprocess.DEVNULL))
    shaped_hosts.await_ranks(processes, options.timeout, f"{program}, {way}", output)
    return [row for row in Gyre.rows(rows_file) if not row["in_place"]]


def limit_ms(size, rates):
    return 1e3 * shaping.frame_bits(size) / sum(map(shaping.bits_per_s, rates))


def measure(hosts, options, program):
    """{way: Series}"""
    ways = [*hosts.cables, ALL]
    series = {way: Series() for way in ways}
    for turn in range(options.rounds):
        shift = turn % len(ways)
        for way in ways[shift:] + ways[:shift]:
            print(f"  {program}, round {turn + 1} of {options.rounds}, {way}", file=sys.stderr,
                  flush=True)
            series[way].add(run_once(hosts, options, program, way))
    return series


def results(series, options, program):
    """A row for each size and way."""
    for size in sizes_of(options):
        for way, one in series.items():
            times = one.p50[size, False]
            ms = one.median((size, False)) / 1e3
            yield {"program": program, "bytes": size, "way": way, "p50_ms": round(ms, 3),
                   "least_ms": round(min(times) / 1e3, 3), "most_ms": round(max(times) / 1e3, 3),
                   "of_sum": round(limit_ms(size, options.rates) / ms, 4)}


def print_table(rows, options, control):
    print(f"\n{rows[0]['program']}, two hosts, cables of {', '.join(options.rates)}, {control}; "
          f"medians of {options.rounds} rounds")
    print(f"{'bytes':>10}  {'over':<8}  {'ms':>9}  {'least..most':>17}  of the sum of the rates")
    for row in rows:
        span = f"{row['least_ms']:.2f}..{row['most_ms']:.2f}"
        print(f"{row['bytes']:>10}  {row['way']:<8}  {row['p50_ms']:>9.2f}  {span:>17}  "
              f"{row['of_sum']:.1%}", flush=True)


def measure_all(hosts, options):
    hosts.shape(options.rates)
    if options.congestion:
        hosts.set_congestion(options.congestion)
    control = hosts.congestion()
    common = {"rates": options.rates, "congestion": control, "rounds": options.rounds}
    record = []
    for program in options.program:
        rows = list(results(measure(hosts, options, program), options, program))
        print_table(rows, options, control)
        record += [{**common, **row} for row in rows]
    if options.record:
        append_results("nics", "bench/compare/nics.py", record)


def main():
    options = arguments()
    programs = [Gyre(options.build, program).program for program in options.program]
    if reason := shaped_hosts.why_not(programs):
        sys.exit(f"nics.py: {reason}")
    runs = len(programs) * options.rounds * (len(options.rates) + 1)
    shaped_hosts.measure_on(
        "nics.py", lambda: two_hosts.TwoHosts(f"nics{os.getpid()}", 60 + runs * options.timeout,
                                              len(options.rates)),
        lambda hosts: measure_all(hosts, options))


if __name__ == "__main__":
    main()
