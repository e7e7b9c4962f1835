#!/usr/bin/env python3
"""Exits one of two ranks at seeded instants: during calls of another thread, with busy streams, in
a callback, while communicators come and go. The exit code is always the program's own. The other
rank gets an error or has finished.

usage: exit_test.py PROGRAM [--instants N] [--first SEED] [--jobs N]
"""
import argparse
import collections
import concurrent.futures
import os
import random
import subprocess
import sys
import tempfile
import time

MODES = ["thread", "streams", "callback", "init", "handler"]
OWN_CODE = 42
LATEST_US = 40000
PATIENCE_S = 15  # a limit, not a measure: of GYRE_TIMEOUT there are 60


class Trial:
    def __init__(self, seed):
        choose = random.Random(seed)
        self.seed = seed
        self.mode = MODES[seed % len(MODES)]
        self.transport = choose.choice(["shm", "tcp"])
        self.delay_us = choose.randrange(LATEST_US)

    def run(self, program):
        """What is wrong, or nothing."""
        with tempfile.TemporaryDirectory(prefix="gyre-exit-") as folder:
            ranks = [subprocess.Popen(
                [program, self.mode, str(self.delay_us)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env=dict(os.environ, GYRE_RANK=str(rank), GYRE_SIZE="2", GYRE_LOCAL_RANK=str(rank),
                         GYRE_LOCAL_SIZE="2", GYRE_RENDEZVOUS_FILE=os.path.join(folder, "id"),
                         GYRE_TRANSPORT=self.transport, GYRE_SOCKET_IFNAME="lo",
                         GYRE_TIMEOUT="60", GYRE_INIT_TIMEOUT="10")) for rank in range(2)]
            until = time.monotonic() + PATIENCE_S
            said = [self.end_of(rank, until) for rank in ranks]
        wrong = []
        if ranks[0].returncode != OWN_CODE:
            wrong.append(f"rank 0 ended with {ranks[0].returncode}: {said[0][-600:]}")
        # A call of rank 1 that was under way may have been finished, but none that came later.
        if ranks[1].returncode != 0:
            wrong.append(f"rank 1 ended with {ranks[1].returncode}: {said[1][-600:]}")
        return "\n  ".join(wrong)

    @staticmethod
    def end_of(rank, until):
        try:
            return rank.communicate(timeout=max(0.05, until - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            rank.kill()
            return "did not end; " + rank.communicate()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--instants", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    trials = [Trial(arguments.first + n) for n in range(arguments.instants)]
    bad = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for trial, wrong in zip(trials, pool.map(lambda one: one.run(program), trials)):
            if not wrong:
                continue
            bad[trial.mode] += 1
            print(f"seed {trial.seed} ({trial.mode}, {trial.transport}, {trial.delay_us} us):\n"
                  f"  {wrong}", flush=True)
    print(f"{len(trials)} instants, {sum(bad.values())} wrong {dict(bad) or ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
