#!/usr/bin/env python3
"""The fault campaign: each seed is a scenario, a job of real processes into which a fault is
injected.

A call that succeeds has to give right results. A failure has to reach every rank in time and name
the right culprit. After a call the library leaves its memory alone. Nothing is left behind.
faults.py is the table of faults; phases.py is the table of moments in a job's life at which they
strike. With root, hosts are namespaces joined by a router. The program skips what this machine
cannot do, and says so.

  campaign.py --seed 17              one scenario, shown, and every rank's log if something escapes
  campaign.py --seeds 0..400         many, side by side, and a table
  campaign.py --seeds 0.. --minutes 10
  campaign.py --syscalls             the k-th system call of each kind fails, or kills the process

Exit code: 0 if nothing escaped, 1 if something did, 2 for a wrong option, 130 if interrupted.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback

import hosts
import sweep
from draw import draw_scenario
from faults import BY_NAME, LIVENESS_S
from pulse import Pulse
from tally import Tally
from trial import Trial
from verdict import Verdict

PROGRESS_S = 10
# A trial with an escape is run again if the machine stood still for so long meanwhile.
STALL_S = 0.3 * LIVENESS_S
MAX_TRIES = 3
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, "build", "tests", "campaign", "campaign_rank")


class Campaign:
    """Runs scenarios side by side until there are no more, or the time is up, or somebody stops
    it."""

    def __init__(self, program, jobs, lacks):
        self.program, self.jobs, self.lacks = program, jobs, lacks
        self.tally, self.broken_runs = Tally(), []
        self.pulse = Pulse()
        self.stopping = threading.Event()

    def stop(self, *_signal):
        self.stopping.set()

    def why_not(self, scenario):
        """Why it cannot be run here, or nothing."""
        needs = set(scenario.fault.needs) | ({"namespaces"} if scenario.hosts > 1 else set())
        return next((self.lacks[need] for need in sorted(needs) if need in self.lacks), None)

    def run_one(self, scenario):
        for _ in range(MAX_TRIES):
            since = time.monotonic()
            trial = Trial(scenario, self.program, "namespaces" not in self.lacks,
                          self.stopping.is_set).carry_out()
            if self.stopping.is_set():
                return None
            verdict = Verdict(trial)
            verdict.stalled_s = self.pulse.stalled_s(since) + trial.healed_late_s
            if not verdict.escapes or verdict.stalled_s < STALL_S:
                break
            self.tally.disturbed += 1
        return verdict

    def run(self, scenarios, until=None):
        """Takes from `scenarios` until they are over."""
        start = shown_at = time.monotonic()
        waiting = set()
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            source = iter(scenarios)
            while True:
                over = self.stopping.is_set() or (until is not None and time.monotonic() > until)
                while not over and len(waiting) < self.jobs:
                    scenario = next(source, None)
                    if scenario is None:
                        over = True
                    elif reason := self.why_not(scenario):
                        self.tally.left_out[reason] += 1
                    else:
                        waiting.add(pool.submit(self.run_one, scenario))
                if not waiting:
                    return
                done, waiting = concurrent.futures.wait(
                    waiting, timeout=1, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    self.take(future)
                if time.monotonic() - shown_at > PROGRESS_S:
                    shown_at = time.monotonic()
                    print(f"... {shown_at - start:.0f} s, {len(self.tally.rows)} runs, "
                          f"{len(self.tally.escaped())} with an escape", flush=True)

    def take(self, future):
        try:
            verdict = future.result()
        except Exception:  # the campaign's own: it goes on, and says so at the end
            self.broken_runs.append(traceback.format_exc())
            return
        if verdict is None:
            return
        self.tally.add(verdict)
        if verdict.escapes:
            print(escapes_of(verdict), flush=True)


def escapes_of(verdict, most=4):
    scenario = verdict.scenario
    lines = [f"{scenario.fault.name} in {scenario.phase.name}, {scenario.ranks} ranks, "
             f"{scenario.hosts} hosts: tests/campaign/campaign.py {scenario.replay}"
             + (f" (the machine stood still for {verdict.stalled_s:.1f} s)"
                if verdict.stalled_s >= STALL_S else "")]
    lines += [f"    {escape.promise}: {escape.reason}" for escape in verdict.escapes[:most]]
    if len(verdict.escapes) > most:
        lines.append(f"    and {len(verdict.escapes) - most} more")
    return "\n".join(lines)


def logs_of(verdict):
    """What each rank wrote, in seconds since the first line."""
    lines = []
    first = verdict.events[0].ns if verdict.events else 0
    for rank, events in sorted(verdict.by_rank.items()):
        lines.append(f"rank {rank}:" if rank >= 0 else "processes:")
        lines += [f"  {(event.ns - first) / 1e9:9.4f} {event.word} {event.rest}"
                  for event in events]
    for process in verdict.trial.processes:
        lines.append(f"process {process.number} ended with {process.popen.returncode}"
                     + (", and said:" if process.text else ""))
        lines += ["  " + line for line in process.text.splitlines()[:20]]
    return "\n".join(lines)


def replay(campaign, scenario, always):
    """One scenario, in full."""
    print(scenario.shown(), flush=True)
    if reason := campaign.why_not(scenario):
        print(f"left out: {reason}")
        return 0
    verdict = campaign.run_one(scenario)
    if verdict is None:
        return 130
    if verdict.escapes or always:
        print(logs_of(verdict))
    for telling in verdict.tellings:
        print(f"rank {telling.rank} was told after {telling.seconds:.3f} s: {telling.text}")
    if verdict.escapes:
        print(escapes_of(verdict, most=1000))
    print("escaped" if verdict.escapes else "held")
    return 1 if verdict.escapes else 0


def seed_range(text):
    first, dots, last = text.partition("..")
    if not dots:
        raise argparse.ArgumentTypeError(f"{text}: not FIRST..LAST or FIRST..")
    return range(int(first), int(last) + 1) if last else itertools.count(int(first))


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="one scenario, with all its output")
    parser.add_argument("--seeds", type=seed_range, help="FIRST..LAST, or FIRST.. with --minutes")
    parser.add_argument("--syscalls", action="store_true", help="the sweep over system calls")
    parser.add_argument("--call", type=sweep.parsed, metavar="WORLD:VICTIM:CALL:WHAT:WHEN",
                        help="one case of the sweep, named as --syscalls prints it")
    parser.add_argument("--minutes", type=float, help="start no more trials after this time")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1),
                        help="trials side by side (default: two for each core)")
    parser.add_argument("--fault", choices=sorted(BY_NAME), metavar="NAME",
                        help="this fault for all seeds: " + ", ".join(BY_NAME))
    parser.add_argument("--verbose", action="store_true", help="with --seed: print the logs always")
    parser.add_argument("--json", metavar="FILE", help="write all rows and the table there")
    parser.add_argument("--program", default=PROGRAM, help=f"campaign_rank (default {PROGRAM})")
    arguments = parser.parse_args()
    chosen = [arguments.seed is not None, arguments.seeds is not None, arguments.syscalls,
              arguments.call is not None]
    if sum(chosen) != 1:
        parser.error("give one of --seed, --seeds, --syscalls and --call")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"there is no {arguments.program}: build it, or give --program")
    return arguments


def main():
    arguments = parse()
    lacks = hosts.missing()
    for what, reason in lacks.items():
        print(f"without {what}: {reason}")
    campaign = Campaign(os.path.abspath(arguments.program), arguments.jobs, lacks)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, campaign.stop)
    if arguments.call or arguments.seed is not None:
        scenario = arguments.call or draw_scenario(arguments.seed, arguments.fault)
        return replay(campaign, scenario, arguments.verbose)
    until = time.monotonic() + arguments.minutes * 60 if arguments.minutes else None
    if arguments.syscalls and "strace" in lacks:
        print("no system call can be made to fail here")
        return 77
    campaign.run(sweep.sweep(campaign.program, "namespaces" not in lacks) if arguments.syscalls else
                 (draw_scenario(seed, arguments.fault) for seed in arguments.seeds), until)
    print(campaign.tally.shown())
    for text in campaign.broken_runs:
        print(f"a run of the campaign broke by itself:\n{text}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(campaign.tally.document(), file, indent=1)
    if campaign.stopping.is_set():
        return 130
    return 1 if campaign.tally.escaped() or campaign.broken_runs else 0


if __name__ == "__main__":
    sys.exit(main())
