#!/usr/bin/env python3
"""Cuts the network between three hosts (namespaces and a router, as root) in the middle of a job.
Every rank must report an error within the liveness limit and a second. This holds for any pair of
hosts, for one direction or both, and for a single connection. The error names the path and blames
ranks at its ends. A cut that heals in time has no effect.

usage: cut_test.py PROGRAM [--only TEXT] [--transport NAME] [--jobs N]
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../campaign"))
import hosts  # noqa: E402
import libraries  # noqa: E402  of tests/support, as hosts has found it

HOSTS, RANKS_EACH = 3, 2
LIVENESS_S = 1
BOUND_S = LIVENESS_S + 1
RUN_S = 4  # of a job that nothing disturbs
# A kernel repeats after 0.2, 0.6, 1.4 and 3 s, or later on a busy machine. A path that heals after
# CUT_S has one more repeat before the limit, even if the heal comes a second late.
HEALED_LIVENESS_S, CUT_S, HEALED_RUN_S = 4, 1.2, 6


class Job:
    """Ranks that reduce until their time is up, two on each host."""

    def __init__(self, program, net, folder, transport, liveness_s, seconds, more):
        secret = os.path.join(folder, "secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(os.urandom(32).hex())
        self.net, self.ranks = net, []
        size = HOSTS * RANKS_EACH
        for rank in range(size):
            settings = dict(
                net.settings, GYRE_RANK=str(rank), GYRE_SIZE=str(size),
                GYRE_LOCAL_RANK=str(rank % RANKS_EACH), GYRE_LOCAL_SIZE=str(RANKS_EACH),
                GYRE_RENDEZVOUS_ADDRESS=f"{net.address(0)}:4711",
                GYRE_RENDEZVOUS_SECRET_FILE=secret, GYRE_LIVENESS_TIMEOUT=str(liveness_s),
                GYRE_TRANSPORT=transport, GYRE_TIMEOUT="60", GYRE_INIT_TIMEOUT="20",
                GYRE_ALGO="allreduce:ring")
            words = [f"{name}={value}" for name, value in settings.items()]
            self.ranks.append(subprocess.Popen(
                net.on(rank // RANKS_EACH, ["env", *words, program, str(seconds), "cut", *more]),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True))

    def await_begin(self):
        """All ranks print a line when they have made a call."""
        for rank in self.ranks:
            rank.stdout.readline()

    def await_end(self, limit_s):
        """(seconds until the last one ended, what each said); None for who did not end."""
        begun, said = time.monotonic(), []
        for rank in self.ranks:
            left = max(0.05, begun + limit_s - time.monotonic())
            try:
                said.append(rank.communicate(timeout=left)[0])
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.communicate()
                said.append(None)
        return time.monotonic() - begun, said


def named(text):
    found = re.findall(r"ranks? (\d[\d, -]*)", text)
    return {int(number) for group in found for number in re.findall(r"\d+", group)}


def judge_cut(seconds, said, ends):
    """What is wrong with the ranks' last words, after a cut between two hosts."""
    wrong = []
    if any(text is None for text in said):
        return [f"ranks {[i for i, text in enumerate(said) if text is None]} were told nothing"]
    if seconds > BOUND_S + 1:  # a process has to end, too
        wrong.append(f"told after {seconds:.2f} s")
    ranks = {rank for host in ends for rank in range(host * RANKS_EACH, (host + 1) * RANKS_EACH)}
    for rank, text in enumerate(said):
        path = re.search(r"from 10\.78\.(\d)\.2:\d+", text)
        if "error 6" not in text or not named(text) & ranks:
            wrong.append(f"rank {rank}: {text.strip()[-300:]}")
        elif not path or int(path.group(1)) not in ends:
            wrong.append(f"rank {rank} does not name the path: {text.strip()[-300:]}")
    return wrong


def judge_peace(_seconds, said, _ends):
    return [f"rank {rank}: {(text or 'nothing').strip()[-300:]}" for rank, text in enumerate(said)
            if text is None or not text.strip().split("\n")[-1].startswith("done")]


def cut_one_connection(net, first, second):
    # Data and control: each in turn is lost in some trial, as their order is the ports'.
    ports = net.connections(first, second)
    net.cut_connection(first, second, ports[len(ports) // 2])


def lose_the_note(net, first, second):
    """Of connections that are opened from here on, the second's packets with bytes in them: its
    program takes them for sent, and the first one's knows of no connection."""
    known = ", ".join(f"{theirs} . {ours}" for ours, theirs in net.connections(first, second))
    net.drop([f"ip saddr {net.address(second)} ip daddr {net.address(first)} meta length > 80 "
              f"tcp sport . tcp dport != {{ {known} }}"])


def heal_in_time(net, first, second):
    net.cut(first, second)
    time.sleep(CUT_S)
    net.heal()


CASES = {}
for pair in ((0, 1), (0, 2), (1, 2)):
    CASES[f"{pair[0]} and {pair[1]}, both ways"] = (hosts.Hosts.cut, pair, judge_cut)
    CASES[f"{pair[0]} to {pair[1]}"] = (hosts.Hosts.lose, pair, judge_cut)
    CASES[f"{pair[1]} to {pair[0]}"] = (hosts.Hosts.lose, pair[::-1], judge_cut)
    CASES[f"one connection of {pair[0]} and {pair[1]}"] = (cut_one_connection, pair, judge_cut)
    CASES[f"{pair[0]} and {pair[1]}, healed"] = (heal_in_time, pair, judge_peace)
CASES["a note of 1 to 0"] = (lose_the_note, (0, 1), judge_cut)
CASES["a note of 1 to 0 that comes"] = (lambda *_: None, (0, 1), judge_peace)


def times(disturb, judge):
    """The liveness limit and the length of a job, in seconds."""
    if disturb is heal_in_time:
        return HEALED_LIVENESS_S, HEALED_RUN_S
    return LIVENESS_S, RUN_S if judge is judge_peace else 60


def run_case(program, transport, name):
    disturb, ends, judge = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        net = hosts.Hosts(HOSTS, f"cut{os.getpid()}")
        try:
            cue = os.path.join(folder, "cue")
            job = Job(program, net, folder, transport, *times(disturb, judge),
                      [cue] if "note" in name else [])
            job.await_begin()
            time.sleep(0.3)
            disturb(net, *ends)
            with open(cue, "wb"):
                pass  # whoever waits for it goes on
            seconds, said = job.await_end(BOUND_S + 10)
            return seconds, judge(seconds, said, ends)
        finally:
            net.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    parser.add_argument("--transport", default="shm,tcp", help="as for GYRE_TRANSPORT")
    parser.add_argument("--jobs", type=int, default=3)
    arguments = parser.parse_args()
    lacks = hosts.missing()
    for need in ("namespaces", "nft"):
        if need in lacks:
            print(f"skipped: {lacks[need]}")
            return 77
    if "ucx" in arguments.transport and (reason := libraries.why_no_ucx()):
        print(f"skipped: {reason}")
        return 77
    names = [name for name in CASES if arguments.only in name]
    bad = 0
    program = os.path.abspath(arguments.program)  # hosts begin in folders of their own
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = {name: pool.submit(run_case, program, arguments.transport, name)
                   for name in names}
        for name, result in results.items():
            seconds, wrong = result.result()
            print(f"{name}: {seconds:.2f} s{'' if not wrong else ': WRONG'}", flush=True)
            for line in wrong:
                print(f"    {line}")
            bad += bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
