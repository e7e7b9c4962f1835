#!/usr/bin/env python3
"""Gyre beside other libraries on this host, in one run, over shared memory: Open MPI and MPICH of
Debian and of PyPI, Intel MPI, and Gloo by its C++ API, which only has TCP. A library that is not
there is left out, with the reason and the way to get it.

Each library's ranks are started once, on the same cores, and measured in turns. Buffers come from
malloc and stay in the caches, unless said otherwise. Results are checked. A ratio is the best
peer's time over Gyre's: above 1 Gyre is faster. Beside the times are limits of the machine, of the
same run: the shortest exchange between two cores (line), bytes that each core writes and the other
reads, through the caches and past them (cache, bypass), and a copy from and to memory (stream).
slow_rounds.py has the rule by which slow rounds are left out.
"""
import argparse
import contextlib
import datetime
import difflib
import json
import os
import signal
import sys

import compare_chart
import compare_table
import contenders
import recorded
from interleaved import Measurement, Row
from rank_job import JobFailed, RankJob
from rounds import ROOT, parse_size, provenance
from slow_rounds import Summary

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all",
               "gather", "scatter", "send_recv", "barrier")
ONLY_IN_PLACE = ("broadcast",)  # in MPI
ONLY_OUT_OF_PLACE = ("send_recv", "barrier")
BLOCKS_OF_RANKS = ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
ELEMENT_BYTES = {"float": 4, "bfloat16": 2}
DEFAULT = {"rounds": 15, "budget": 20, "sizes": "8 64 512 2K 8K 32K 128K 512K 2M 8M 64M"}
QUICK = {"rounds": 5, "budget": 5, "sizes": "8 512 4K 64K 1M 8M"}


def size_of(text):
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{text}" is no size, as in 8, 4K or 64M') from error


def arguments(words=None):
    parser = argparse.ArgumentParser(prog="tools/dev compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collectives", nargs="*", metavar="COLLECTIVE",
                        help=f"some of {', '.join(COLLECTIVES)}; default: all")
    parser.add_argument("--quick", action="store_true",
                        help="fewer sizes and rounds: at most 5 minutes on 2 cores")
    parser.add_argument("--ranks", type=int, default=2, metavar="N",
                        help="default 2; peers are told to yield if there are fewer cores")
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp"], metavar="NAME",
                        help="shm (default), or tcp over loopback")
    parser.add_argument("--sizes", nargs="+", type=size_of, metavar="SIZE",
                        help=f"bytes of the larger buffer; default: {DEFAULT['sizes']}")
    parser.add_argument("--types", nargs="+", default=["float"], choices=list(ELEMENT_BYTES),
                        metavar="TYPE", help="float, bfloat16 or both; default: float")
    parser.add_argument("--places", nargs="+", default=["out"], choices=["out", "in"],
                        metavar="PLACE", help="out of place, in place or both; default: out. "
                        "MPI's broadcast is always in place")
    parser.add_argument("--memory", default="malloc", choices=["malloc", "registered"],
                        metavar="KIND", help="malloc (default), or registered: of gyreMemAlloc, "
                        "and of MPI_Alloc_mem")
    parser.add_argument("--cold", action="store_true",
                        help="buffers move through memory that is larger than the caches")
    parser.add_argument("--written", action="store_true",
                        help="each rank writes its input anew before each call, as programs do; "
                        "else caches keep what they have read of other ranks' inputs")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help=f"default {DEFAULT['rounds']}, with --quick {QUICK['rounds']}")
    parser.add_argument("--budget", type=int, metavar="MS", help="milliseconds for one library, "
                        f"row and round; default {DEFAULT['budget']}, with --quick "
                        f"{QUICK['budget']}")
    parser.add_argument("--peers", nargs="*", metavar="PEER", help="some of " +
                        ", ".join(peer.name for peer in contenders.peers()) + "; default: all; "
                        "raw_sum and raw_move are plain sockets, of 2 ranks with --transport tcp")
    parser.add_argument("--gloo", nargs="+", metavar="FOLDER", help="instead of Debian's: a prefix "
                        "with Gloo's headers and libgloo.a, or its sources and build folder")
    parser.add_argument("--cores", metavar="LIST", help="as in 0,1: ranks go round them; default: "
                        "all that this process may use")
    parser.add_argument("--json", metavar="FILE.jsonl", help="append the results to this file")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the ratios of the first type and "
                        "place")
    parser.add_argument("--record", action="store_true",
                        help="append them to bench/results/compare.jsonl")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), metavar="FOLDER",
                        help="Gyre's build folder")
    parser.add_argument("--targets", action="store_true",
                        help="only print what has to be built")
    return settle(parser, parser.parse_args(words))


def settle(parser, options):
    """Wrong words end the program; what is not given gets its default."""
    known = [peer.name for peer in contenders.peers()]
    for what, given, there in (("collective", options.collectives, COLLECTIVES),
                               ("peer", options.peers or [], known)):
        for word in given:
            if word not in there:
                near = difflib.get_close_matches(word, there, 1)
                parser.error(f'there is no {what} "{word}"; ' +
                             (f"did you mean {near[0]}?" if near
                              else f"there are {', '.join(there)}"))
    defaults = QUICK if options.quick else DEFAULT
    options.sizes = options.sizes or [parse_size(word) for word in defaults["sizes"].split()]
    options.rounds = options.rounds if options.rounds is not None else defaults["rounds"]
    options.budget = options.budget if options.budget is not None else defaults["budget"]
    options.collectives = options.collectives or list(COLLECTIVES)
    fitting = [peer.name for peer in contenders.peers() if options.transport in peer.transports
               and peer.max_ranks >= options.ranks]
    options.peers = fitting if options.peers is None else options.peers
    for name in options.peers:
        if name not in fitting:
            parser.error(f"{name} does not do {options.ranks} ranks over {options.transport}")
    for name, least in (("ranks", 2), ("rounds", 1), ("budget", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} takes a whole number from {least}")
    if options.ranks > 36:
        parser.error("--ranks takes at most 36: beyond that sums of bfloat16 are not exact")
    try:
        options.cores = ([int(word) for word in options.cores.split(",")] if options.cores
                         else sorted(os.sched_getaffinity(0)))
    except ValueError:
        parser.error("--cores takes numbers and commas, as in 0,1")
    return options


def rows_of(options):
    """Rows in the order of their tables. Sizes become what the ranks can share in whole elements;
    too small ones are left out."""
    rows = []
    for collective in options.collectives:
        for element in options.types:
            for place in options.places:
                in_place = (place == "in" or collective in ONLY_IN_PLACE) \
                    and collective not in ONLY_OUT_OF_PLACE
                sizes = [4] if collective == "barrier" else options.sizes
                unit = ELEMENT_BYTES[element] * (
                    options.ranks if collective in BLOCKS_OF_RANKS else 1)
                if collective == "barrier" and element != options.types[0]:
                    continue
                for size in sizes:
                    row = Row(collective, element, in_place, size // unit * unit)
                    if row.bytes > 0 and row not in rows:
                        rows.append(row)
    return rows


def last_level_cache():
    """Bytes of the largest cache that the first core has a part of."""
    folder = "/sys/devices/system/cpu/cpu0/cache"
    found = [32 << 20]
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            with open(os.path.join(folder, name, "size"), encoding="ascii") as file:
                found.append(parse_size(file.read().strip()))
        except OSError:
            pass
    return max(found)


def need_memory(needed):
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next((int(line.split()[1]) << 10 for line in file
                          if line.startswith("MemAvailable:")), needed)
    if needed > 0.8 * available:
        sys.exit(f"tools/dev compare: all buffers together take {needed / 2 ** 30:.1f} GiB, and "
                 f"{available / 2 ** 30:.1f} GiB are free: give smaller --sizes or fewer --peers")


class Progress:
    """One line that changes on a terminal; elsewhere a line every ten seconds."""

    def __init__(self, stream=sys.stderr):
        self.stream, self.terminal = stream, stream.isatty()
        self.last = datetime.datetime.min

    def __call__(self, text, lasting=False):
        now = datetime.datetime.now()
        if self.terminal:
            print(f"\r\033[K{text}", end="\n" if lasting else "", file=self.stream, flush=True)
        elif lasting or (now - self.last).total_seconds() >= 10:
            self.last = now
            print(text, file=self.stream, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\033[K", end="", file=self.stream, flush=True)


def start(options, say, started):
    """({name: job}, the bare job, {name: why it is absent}); Gyre's job comes first. `started`, an
    ExitStack, ends each job."""
    how = contenders.Start(options.ranks, options.transport,
                           options.ranks > len(options.cores), None)
    largest = max(options.sizes)
    region = max(largest, 2 * last_level_cache())
    settings = {"COMPARE_CORES": ",".join(map(str, options.cores)),
                "COMPARE_MEMORY": options.memory,
                "COMPARE_REGION": str(region if options.cold else largest)}
    settings.update({f"COMPARE_{name.upper()}": "1" for name in ("cold", "written")
                     if getattr(options, name)})
    jobs, absent, bare = {}, {}, None
    wanted = [contenders.Gyre(), contenders.Bare()]
    wanted += [peer for peer in contenders.peers(options.gloo) if peer.name in options.peers]
    need_memory(len(wanted) * options.ranks * 2 * int(settings["COMPARE_REGION"]))
    for contender in wanted:
        say(f"starting {contender.name}")
        own = settings
        if contender.name == "bare":
            own = {**settings, "COMPARE_REGION": str(region), "COMPARE_MEMORY": "malloc"}
        try:
            contender.prepare(options.build)
            job = RankJob(contender, how, own)
            started.callback(job.end)
        except (contenders.Absent, JobFailed, OSError) as reason:
            absent[contender.name] = str(reason)
            continue
        if contender.name == "bare":
            bare = job
        else:
            jobs[contender.name] = job
    return jobs, bare, absent


def record(path, lines):
    with open(path, "a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


def main():
    options = arguments()
    if options.targets:
        print("tools/gyre bench/compare/gyre_ranks bench/compare/bare_ranks "
              "bench/compare/raw_ranks")
        return 0
    # As Ctrl+C: the libraries' ranks are ended below.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    say = Progress()
    with contextlib.ExitStack() as started:
        jobs, bare, absent = start(options, say, started)
        say.clear()
        for name, reason in absent.items():
            print(f"{name} is left out: {reason}", file=sys.stderr)
        if "gyre" not in jobs or bare is None:
            return 2
        versions = {name: job.library for name, job in jobs.items()}
        measurement = Measurement(jobs, bare, options, say)
        measurement.run(rows_of(options), options.rounds)
        say.clear()
    usual = measurement.usual()
    summaries = {row: Summary(figures, usual) for row, figures in measurement.figures.items()}
    compare_table.show(summaries, measurement, versions, options)
    common = provenance("tools/dev compare")
    lines = [{**common, **line} for line in
             compare_table.lines_of(summaries, measurement, versions, absent, options)]
    if options.json:
        record(options.json, lines)
    if options.record:
        record(recorded.FILE, lines)
    if options.plot and lines:
        found = recorded.newest(lines, options.places[0] == "in", type=options.types[0])
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(compare_chart.draw(*next(iter(found.items())), options.places[0] == "in"))
    for (name, row), wrong in measurement.wrong.items():
        print(f"{name}: {row.collective} of {row.bytes} bytes, {row.element}, "
              f"{'in' if row.in_place else 'out of'} place: {wrong} elements are wrong",
              file=sys.stderr)
    return 1 if measurement.wrong or measurement.problems else 0


if __name__ == "__main__":
    sys.exit(main())
