#!/usr/bin/env python3
"""All-reduce over several hosts, beside what their links must carry: the ring in rank order, the
ring in the order that Gyre gives it, hierarchical, and Gyre's own choice, in interleaved rounds.
Hosts are network namespaces; each has a link to a switch, which tc shapes to a rate in both
directions. Ranks are numbered round the hosts, so that each step of a ring in rank order leaves a
host.

    bench/compare/hosts.py                                   # as root; equal links and unequal ones
    bench/compare/hosts.py -b 32K -e 2M -f 4 --rates 200mbit --way rank doubling twoshot ring \\
        hierarchical                                         # from which size on which is best

The model of a time: the bytes of the plan (gyre plan) that the busiest link carries, with headers,
at its rate. A gain is the time of the ring in rank order over that of a way, measured and by the
model. For the ring in rank order every rank has a boot id of its own, as if it were alone on its
host. Ranks then share no memory, but no step of that ring could use it."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import shaped_hosts
from perf_programs import Gyre
from rounds import ROOT, Series, add_sizes, append_results, ratio_interval, sizes_of
import shaping  # shaped_hosts has put their folder there
import two_hosts

RANK_ORDER = "rank"
CHOICE = "choice"
WITHIN = 0.15
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def link_rates(text):
    """One for all hosts, or one for each."""
    return [shaping.rate(word) for word in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks-per-host", type=int, default=2, metavar="N")
    parser.add_argument("--rates", type=link_rates, nargs="+", metavar="RATE[,RATE...]",
                        default=["200mbit", "200mbit,200mbit,200mbit,100mbit"],
                        help="rate of the hosts' links as for tc: one for all, or one for each "
                        "host; each such setting is measured on its own")
    parser.add_argument("--way", nargs="+", default=[RANK_ORDER, "ring", "hierarchical", CHOICE],
                        metavar="NAME[,NAME=VALUE...]", help=f"{RANK_ORDER}: the ring in rank "
                        f"order, which comes first in any case; {CHOICE}: what Gyre chooses; or an "
                        "algorithm, as gyre plan --list names it. With settings for it, as in "
                        "ring,GYRE_BUFFSIZE=128K")
    parser.add_argument("--congestion", metavar="NAME",
                        help="TCP's congestion control; default: this machine's")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each way and size")
    add_sizes(parser, "4M", 4)
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one run")
    parser.add_argument("--record", action="store_true", help="append to bench/results/hosts.jsonl")
    options = parser.parse_args()
    options.rates = [link_rates(given) if isinstance(given, str) else given
                     for given in options.rates]
    for given in options.rates:
        if len(given) not in (1, options.hosts):
            parser.error(f"--rates {','.join(given)}: {len(given)} rates for {options.hosts} hosts")
    if options.stepfactor < 2 or min(options.rounds, options.hosts, options.ranks_per_host) < 1:
        parser.error("--stepfactor is at least 2; --rounds, --hosts and --ranks-per-host 1")
    options.way = [RANK_ORDER] + [way for way in options.way if way != RANK_ORDER]
    return options


def iterations(size):
    """So many that small sizes take about as long as 8 MiB; out of place, and again in place."""
    return max(1, min(50, (8 << 20) // size))


# ------------------------------------------------------------------ the model

class Layout:
    """Which rank is on which host, and what Gyre made of it: its log says so."""

    def __init__(self, hosts, text):
        self.hosts = hosts
        found = re.search(r"(\d+) hosts of [\d, ]+ ranks, rings in (rank order|the order [\d ]+)",
                          text)
        if not found:
            raise RuntimeError(f"rank 0 does not say how the ranks lie:\n{text}")
        self.seen_hosts = int(found[1])
        self.order = found[2].removeprefix("the order ").replace(" ", ",")
        if found[2] == "rank order":
            self.order = ""

    def host_of(self, rank):
        return rank % self.hosts


def chosen_algorithm(text, size):
    """As rank 0 says it when it first chooses it; the program's own calls choose too."""
    said = re.findall(r"all ranks choose (\w+) with \w+ for all_reduce of (\d+) bytes", text)
    exact = [algorithm for algorithm, count in said if int(count) == size]
    if not said:
        raise RuntimeError(f"rank 0 does not say what it chooses:\n{text}")
    return exact[0] if exact else said[-1][0]


def model_ms(plan, layout, rates):
    """The time in which the busiest of the hosts' links carries the plan's bytes."""
    sent, received = [0] * layout.hosts, [0] * layout.hosts
    for link in plan["links"]:
        source, target = layout.host_of(link["from"]), layout.host_of(link["to"])
        if source != target:
            sent[source] += link["bytes"]
            received[target] += link["bytes"]
    return max(1e3 * shaping.frame_bits(max(out, into)) / shaping.bits_per_s(rate)
               for out, into, rate in zip(sent, received, rates))


def plan_of(options, algorithm, size, layout):
    command = [Gyre(options.build).launcher, "plan", "all_reduce", "-a", algorithm, "-n",
               str(options.hosts * options.ranks_per_host), "--rank", "0", "--bytes", str(size),
               "--json"]
    if layout.order:
        command += ["--order", layout.order]
    if algorithm == "hierarchical":
        command += ["--hosts", str(layout.seen_hosts)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


# ------------------------------------------------------------------ the measurement

class Ranks:
    """One run: a process for each rank, which end with their hosts at the latest."""

    def __init__(self, hosts, options, way, size, check):
        self.hosts, self.options, self.way = hosts, options, way
        self.name, *settings = way.split(",")
        self.settings = dict(word.split("=", 1) for word in settings)
        self.files = {name: os.path.join(hosts.folder, name)
                      for name in ("rows.json", "log", "output")}
        for path in self.files.values():
            pathlib.Path(path).unlink(missing_ok=True)
        self.command = [Gyre(options.build).program, "-b", str(size), "-e", str(size), "-n",
                        str(iterations(size)), "-w", "1", "-c", str(check), "--stats",
                        "--device", "host", "-J", self.files["rows.json"]]
        self.processes = []

    def start(self, rank):
        options = self.options
        environment = self.hosts.environment(
            rank, options.hosts * options.ranks_per_host, rank // options.hosts,
            options.ranks_per_host)
        environment |= self.settings
        if self.name != CHOICE:
            algorithm = "ring" if self.name == RANK_ORDER else self.name
            environment["GYRE_ALGO"] = "allreduce:" + algorithm
        command = list(self.command)
        if rank == 0:
            environment |= {"GYRE_DEBUG": "INFO", "GYRE_DEBUG_SUBSYS": "GRAPH,TUNING",
                            "GYRE_DEBUG_FILE": self.files["log"]}
        if self.name == RANK_ORDER:
            own = os.path.join(self.hosts.folder, f"rank{rank}")
            pathlib.Path(own).write_text(f"rank{rank}\n", encoding="ascii")
            command = ["unshare", "--mount", "sh", "-c",
                       f'mount --bind {own} {BOOT_ID} && exec "$@"', "sh", *command]
        with open(self.files["output"], "a", encoding="utf-8") as output:
            self.processes.append(subprocess.Popen(
                self.hosts.on(rank % options.hosts, command), env=environment, stdout=output,
                stderr=output, stdin=subprocess.DEVNULL))

    def run(self):
        """(rows of the results, rank 0's log)."""
        for rank in range(self.options.hosts * self.options.ranks_per_host):
            self.start(rank)
        shaped_hosts.await_ranks(self.processes, self.options.timeout, self.way,
                                 self.files["output"])
        # In place, the same bytes cross the links: these are two figures of one round.
        rows = [{**row, "in_place": False} for row in Gyre.rows(self.files["rows.json"])]
        return rows, pathlib.Path(self.files["log"]).read_text(encoding="utf-8")


def measure(hosts, options, rates):
    """{way: Series}, and {(way, size): (algorithm, the model's ms)}."""
    series = {way: Series() for way in options.way}
    models = {}
    for size in sizes_of(options):
        for turn in range(options.rounds):
            shift = turn % len(options.way)
            for way in options.way[shift:] + options.way[:shift]:
                print(f"  {','.join(rates)}: {size} bytes, round {turn + 1} of {options.rounds}, "
                      f"{way}", file=sys.stderr, flush=True)
                rows, log = Ranks(hosts, options, way, size, 1 if turn == 0 else 0).run()
                series[way].add(rows)
                if (way, size) not in models:
                    layout, algorithm = Layout(hosts.hosts, log), chosen_algorithm(log, size)
                    plan = plan_of(options, algorithm, size, layout)
                    all_rates = rates * hosts.hosts if len(rates) == 1 else rates
                    models[way, size] = algorithm, model_ms(plan, layout, all_rates)
    return series, models


def results(series, models, options):
    """A row for each size and way."""
    for size in sizes_of(options):
        key = size, False
        for way, one in series.items():
            algorithm, model = models[way, size]
            ms = one.median(key) / 1e3
            gain = series[RANK_ORDER].median(key) / one.median(key)
            modelled = models[RANK_ORDER, size][1] / model
            yield {"bytes": size, "way": way, "algorithm": algorithm, "p50_ms": round(ms, 3),
                   "least_ms": round(min(one.p50[key]) / 1e3, 3),
                   "most_ms": round(max(one.p50[key]) / 1e3, 3),
                   "model_ms": round(model, 3), "over_model": round(ms / model, 4),
                   "gain": round(gain, 4), "gain_interval": [
                       round(end, 4) for end in ratio_interval(series[RANK_ORDER], one, key)],
                   "model_gain": round(modelled, 4), "of_model_gain": round(gain / modelled, 4)}


def print_table(rows, options, rates, control):
    wide = max(12, *map(len, options.way))
    print(f"\nall-reduce of floats, {options.hosts} hosts of {options.ranks_per_host} ranks, links "
          f"of {', '.join(rates)}, {control}; medians of {options.rounds} rounds")
    print(f"{'bytes':>10}  {'way':<{wide}}  {'algorithm':<12}  {'ms':>9}  {'least..most':>17}  "
          f"{'model ms':>9}  {'ratio':>6}  {'gain':>6}  {'95 % interval':>14}  {'model':>6}  "
          f"within {WITHIN:.0%}")
    for row in rows:
        low, high = row["gain_interval"]
        within = "yes" if abs(row["of_model_gain"] - 1) <= WITHIN else "NO"
        span = f"{row['least_ms']:.1f}..{row['most_ms']:.1f}"
        print(f"{row['bytes']:>10}  {row['way']:<{wide}}  {row['algorithm']:<12}  "
              f"{row['p50_ms']:>9.1f}  {span:>17}  {row['model_ms']:>9.1f}  "
              f"{row['over_model']:>6.3f}  {row['gain']:>6.3f}  {low:>6.3f}..{high:<6.3f}  "
              f"{row['model_gain']:>6.3f}  {within} ({row['of_model_gain']:.3f})", flush=True)


def measure_all(hosts, options):
    if options.congestion:
        hosts.set_congestion(options.congestion)
    control = hosts.congestion()
    for rates in options.rates:
        hosts.shape(rates)
        rows = list(results(*measure(hosts, options, rates), options))
        print_table(rows, options, rates, control)
        if options.record:
            common = {"hosts": options.hosts, "ranks_per_host": options.ranks_per_host,
                      "rates": rates, "congestion": control, "rounds": options.rounds}
            append_results("hosts", "bench/compare/hosts.py", [{**common, **row} for row in rows])


def main():
    options = arguments()
    gyre = Gyre(options.build)
    if reason := shaped_hosts.why_not([gyre.launcher, gyre.program]):
        sys.exit(f"hosts.py: {reason}")
    runs = len(options.rates) * len(list(sizes_of(options))) * options.rounds * len(options.way)
    shaped_hosts.measure_on(
        "hosts.py", lambda: two_hosts.SwitchedHosts(f"hosts{os.getpid()}", options.hosts,
                                                    60 + runs * options.timeout),
        lambda hosts: measure_all(hosts, options))


if __name__ == "__main__":
    main()
