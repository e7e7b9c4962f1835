#!/usr/bin/env python3
"""Jobs of 8 hosts with 2 ranks each, on networks that are slow, odd or broken (cases.py), by tcp
and by ucx. Hosts are network namespaces around a switch. Every rank makes all collectives, and
checks each result bit by bit. It ends with right results, or in time with an error that names a
culprit. Nothing stays behind. Needs root.

usage: networks_test.py PROGRAM [--one-byte LIBRARY] [--only CASE...] [--by tcp|mixed|ucx|ucx-mixed]
       networks_test.py --list
"""
import argparse
import os
import re
import shutil
import sys
import time

import jobs
import libraries  # of tests/support, as jobs has found it
from cases import BY, CASES, EITHER, RIGHT, TOLD
from jobs import two_hosts

SHOWN = 300  # characters of what a rank said last


def named(text):
    """The ranks that an error names."""
    found = re.findall(r"ranks? (\d[\d, -]*(?:and \d+)?)", text)
    return {number for group in found for part in re.findall(r"\d+(?:-\d+)?", group)
            for number in spread(part)}


def spread(part):
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def last_line(text):
    lines = [line for line in text.splitlines() if line.startswith(("error", "done", "wrong"))]
    return lines[-1] if lines else ""


class Run:
    def __init__(self, case, transport, arguments):
        self.case, self.transport, self.arguments = case, transport, arguments
        self.wrong, self.told_s = [], []

    def settings_of(self, network):
        def of_rank(rank):
            return {"GYRE_TRANSPORT": BY[self.transport], **self.case.settings(rank, network)}
        return of_rank

    def carry_out(self):
        case = self.case
        network = case.network(f"net{os.getpid()}", case.hosts, case.bad)
        network.one_byte_io = os.path.abspath(self.arguments.one_byte or "")
        try:
            if case.prepare:
                case.prepare(network)
            self.began = self.struck = time.monotonic()
            job = jobs.Job(network, os.path.abspath(self.arguments.program),
                           [str(case.seconds), *case.counts], self.settings_of(network),
                           case.ranks_each)
            self.disturb_and_judge(network, job)
        finally:
            network.end()
        return self

    def disturb_and_judge(self, network, job):
        case = self.case
        has_begun = case.in_init or job.await_begin()
        if case.strike and has_begun:
            self.struck = time.monotonic()
            case.strike(network, job)
        late = job.await_end(case.limit_s + jobs.END_S if has_begun else 0)
        said = [job.said(rank) for rank in range(job.size)]
        if not has_begun:
            self.wrong.append("not all ranks made a round")
        for rank, text in enumerate(said):
            if job.host_of(rank) in case.silent:
                continue
            if rank in late:
                self.wrong.append(f"rank {rank} hangs: {text.strip()[-SHOWN:]}")
            elif reason := self.fault_of(job, rank, text):
                self.wrong.append(f"rank {rank} {reason}: {text.strip()[-SHOWN:] or 'nothing'}")
        if case.says and not any(re.search(case.says, text) for text in said):
            self.wrong.append(f"no rank says {case.says}")
        self.wrong += self.left_behind(network)
        if case.bad:
            self.judge_cables(network.spoilt())
        if self.arguments.verbose:
            for rank, text in enumerate(said):
                print(f"    rank {rank}: {text.strip()}")

    def left_behind(self, network):
        until = time.monotonic() + 2  # what was killed last may be ending
        while (found := network.left_behind()) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def judge_cables(self, spoilt):
        """A cable that was to spoil frames has spoilt some."""
        for line, faults in zip(spoilt, self.case.bad.values()):
            for name in (fault.split("=")[0] for fault in faults):
                if f"{name}=0" in line.split():
                    self.wrong.append(f"the cable did nothing: {line}")

    def fault_of(self, job, rank, text):
        """What is wrong with a rank's last words, or nothing."""
        line = last_line(text)
        if line.startswith("done"):
            return None if self.case.ending in (RIGHT, EITHER) else "was told nothing"
        found = re.match(r"error ([\d.]+) (\d+) (.*)", line)
        if not found:
            return "gave a wrong result" if line.startswith("wrong") else "ended without a word"
        if self.case.ending == RIGHT:
            return "failed"
        seconds = float(found[1]) - self.struck
        self.told_s.append(seconds)
        if seconds > self.case.limit_s:
            return f"was told after {seconds:.1f} s, not {self.case.limit_s}"
        return self.blames_wrongly(job, rank, found[3])

    def blames_wrongly(self, job, rank, text):
        culprits = job.of_hosts(self.case.culprits)
        if rank in culprits:  # of whom it was cut off
            culprits = set(range(job.size)) - {rank}
        if named(text) & culprits or job.host_of(rank) in self.case.culprits and self.case.in_init:
            return None
        return f"names {sorted(named(text)) or 'nobody'}"


def why_not(case, transport, arguments):
    """Why a case cannot run here, or nothing."""
    missing = [name for name in ("ss", *case.needs) if not shutil.which(name)]
    if missing:
        return f"there is no {missing[0]}"
    if "ucx" in transport and (reason := libraries.why_no_ucx()):
        return reason
    if case.bad and not os.path.exists("/dev/net/tun"):
        return "there are no TAP devices"
    if case is CASES["one-byte"] and not arguments.one_byte:
        return "it takes --one-byte"
    if case is CASES["two-nics"] or case is CASES["one-nic"]:
        return None if shutil.which("tc") else "there is no tc"
    return None


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="collectives_rank")
    parser.add_argument("--one-byte", metavar="LIBRARY", help="one_byte_io, to preload")
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=CASES, metavar="CASE")
    parser.add_argument("--by", nargs="+", default=list(BY), choices=BY)
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--verbose", action="store_true", help="print what each rank said")
    arguments = parser.parse_args()
    if not arguments.program and not arguments.list:
        parser.error("PROGRAM is missing")
    return arguments


def main():
    arguments = parse()
    if arguments.list:
        for name, case in CASES.items():
            print(f"{name:<14} {case.ending:<7} {','.join(case.by):<24} {case.doing}")
        return 0
    if reason := two_hosts.why_not():
        print(f"skipped: {reason}")
        return 77
    bad = 0
    for name in arguments.only:
        case = CASES[name]
        for transport in [one for one in case.by if one in arguments.by]:
            if reason := why_not(case, transport, arguments):
                print(f"{name} by {transport}: skipped: {reason}", flush=True)
                continue
            begun = time.monotonic()
            run = Run(case, transport, arguments).carry_out()
            told = f", told after {min(run.told_s):.2f} to {max(run.told_s):.2f} s" \
                if run.told_s else ""
            print(f"{name} by {transport}: {'WRONG' if run.wrong else case.ending}"
                  f" ({time.monotonic() - begun:.1f} s{told})", flush=True)
            for line in run.wrong:
                print(f"    {line}", flush=True)
            bad += bool(run.wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
