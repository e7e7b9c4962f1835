#!/usr/bin/env python3
"""Kills one rank of a busy job at a seeded instant and checks the errors of the others.

Every survivor has to end within a bound and name the killed rank. A survivor that waits for rank 0
in the next rendezvous may name rank 0 instead, if rank 0 names the killed one. Nothing may stay
behind: no process, no shared memory.

usage: kill_test.py PROGRAM [--transport shm|tcp] [--rounds N] [--first N] [--seed S] [--ranks N]
"""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time

BOUND_S = 15  # 3 times what init's deadline and the detection of a death may take together


def leftovers():
    """Shared memory that a dead process could leave; abstract sockets and memfds end with it."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("gyre")}


def start(arguments, round_number, seconds, rank):
    environment = dict(os.environ, GYRE_RANK=str(rank), GYRE_SIZE=str(arguments.ranks),
                       GYRE_LOCAL_RANK=str(rank), GYRE_LOCAL_SIZE=str(arguments.ranks),
                       GYRE_TRANSPORT=arguments.transport, GYRE_INIT_TIMEOUT="3",
                       GYRE_TIMEOUT="10", GYRE_SOCKET_IFNAME="lo")
    name = f"kill-{os.getpid()}-{arguments.seed}-{round_number}"
    return subprocess.Popen([arguments.program, str(seconds), name], env=environment,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def named_in(output):
    """(the ranks that its last words name, None), or (None, what is wrong with them)."""
    says = [line for line in output.splitlines() if line.startswith(("error", "done", "wrong"))]
    if not says or says[-1].startswith("wrong"):
        return None, "it said nothing of use"
    if says[-1].startswith("done"):
        return None, "it did not notice"
    groups = re.findall(r"ranks? (\d[\d, ]*)", says[-1])
    return {int(rank) for group in groups for rank in re.findall(r"\d+", group)}, None


def verdicts(outputs, victim):
    """What is wrong with the survivors' last words, by rank.

    Each has to name the victim. One that was through with the communicator that broke, and waits in
    the next meeting for a rank 0 that the victim's death has ended, cannot know of the victim: it
    names rank 0, and rank 0 the victim."""
    named = {rank: named_in(output) for rank, output in outputs.items() if rank != victim}
    complaints = {}
    for rank, (ranks, wrong) in named.items():
        if wrong or victim in ranks:
            if wrong:
                complaints[rank] = wrong
            continue
        by_chain = ("has not opened the meeting" in outputs[rank] and 0 in named
                    and victim in (named[0][0] or ()))
        if not by_chain:
            complaints[rank] = f"it names {sorted(ranks)}"
    return complaints


def one_round(arguments, round_number):
    choose = random.Random(f"{arguments.seed} {arguments.transport} {round_number}")
    victim = choose.randrange(arguments.ranks)
    # Half of the instants in start-up, half in work and in the next meetings.
    delay = choose.choice([choose.uniform(0, 0.05), choose.uniform(0.05, 0.6)])
    ranks = [start(arguments, round_number, 20, rank) for rank in range(arguments.ranks)]
    time.sleep(delay)
    os.kill(ranks[victim].pid, signal.SIGKILL)
    killed_at = time.monotonic()
    outputs, complaints = {}, {}
    for rank, process in enumerate(ranks):
        try:
            left = max(0.1, killed_at + BOUND_S - time.monotonic())
            outputs[rank], _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            process.kill()
            outputs[rank], _ = process.communicate()
            complaints[rank] = "it hung"
    complaints = {**verdicts(outputs, victim), **complaints}
    if complaints:
        print(f"round {round_number} (seed {arguments.seed}, victim {victim}, "
              f"after {delay:.3f} s):", *(f"rank {r}: {c}" for r, c in complaints.items()),
              *(f"rank {r} said: {o[-500:].strip()}" for r, o in outputs.items()),
              sep="\n  ", flush=True)
    return not complaints, time.monotonic() - killed_at


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=3)
    arguments = parser.parse_args()
    before = leftovers()
    results = [one_round(arguments, number)
               for number in range(arguments.first, arguments.first + arguments.rounds)]
    stayed = leftovers() - before
    good = sum(ok for ok, _ in results)
    times = sorted(seconds for _, seconds in results)
    print(f"{arguments.transport}: {good} of {len(results)} rounds good; survivors ended after "
          f"{times[0]:.2f} .. {times[len(times) // 2]:.2f} .. {times[-1]:.2f} s")
    if stayed:
        print("left behind:", *sorted(stayed))
    return 0 if good == len(results) and not stayed else 1


if __name__ == "__main__":
    sys.exit(main())
