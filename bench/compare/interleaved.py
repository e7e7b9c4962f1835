"""Rounds of a comparison. In a round each row (collective, type, place and size) is measured by all
contenders, one right after the other, each time in another order. Before each row, and after the
last one, stands a pair of reference exchanges without a library: the shortest one, and one of
256 KiB through the caches. They show when the machine was slow (slow_rounds.py)."""
import collections
import math
import statistics
import time

from rank_job import JobFailed
from slow_rounds import kept_rounds, usual_references

REFERENCES = (("line", 4, 60), ("cache", 256 << 10, 1))  # what, bytes, calls of a block
REFERENCE_BLOCKS = 15
BLOCK_US, CROWDED_BLOCK_US = 60, 1500  # a block lasts at least so long, if that takes many calls
MAX_CALLS, MAX_BLOCKS, MIN_BLOCKS = 2000, 2000, 3
MIN_TAIL, MAX_TAIL = 20, 400  # single calls, for the p99
MAX_WRITTEN_WITHIN = 2048  # bytes whose writing may be timed along with the call

Row = collections.namedtuple("Row", "collective element in_place bytes")


class Figures:
    """What was measured of one row: for each round, by contender."""

    def __init__(self):
        self.us, self.p99_us, self.references, self.cannot = [], [], [], {}


def percentile_99(values):
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * 0.99) - 1)]


def plan(call_us, budget_us, block_us, barrier_us=0):
    """(warm-up calls, blocks, calls of a block), where a call and a barrier take so long."""
    calls = max(1, min(MAX_CALLS, math.ceil(block_us / call_us)))
    blocks = max(MIN_BLOCKS, min(MAX_BLOCKS, int(budget_us / (calls * call_us + barrier_us))))
    warmup = max(1, min(MAX_CALLS, int(0.1 * budget_us / call_us)))
    return warmup, blocks, calls


def tail_plan(call_us, budget_us, barrier_us):
    """The same for single calls."""
    return 1, max(MIN_TAIL, min(MAX_TAIL, int(budget_us / (call_us + barrier_us)))), 1


class Measurement:
    """All jobs of a comparison, and what they measured. `say` shows progress."""

    def __init__(self, jobs, bare, options, say):
        self.jobs, self.bare, self.say = dict(jobs), bare, say
        self.budget_us, self.written = options.budget * 1000, options.written
        self.block_us = CROWDED_BLOCK_US if options.ranks > len(options.cores) else BLOCK_US
        self.figures = collections.OrderedDict()
        self.limits = collections.OrderedDict()  # (what, bytes): microseconds of each round
        self.plans, self.problems, self.wrong = {}, {}, {}

    @staticmethod
    def _times(job, words, numbers):
        """Of each block the slowest rank's time; or why it cannot be."""
        answers = job.ask(" ".join(map(str, ("measure", *words, *numbers))))
        reasons = [answer["cannot"] for answer in answers if "cannot" in answer]
        if reasons:
            return None, reasons[0]
        return [max(block) for block in zip(*(answer["us"] for answer in answers))], None

    def _reference(self):
        return tuple(statistics.median(self._times(
            self.bare, (what, "float", "out", size), (calls, REFERENCE_BLOCKS, calls))[0])
            for what, size, calls in REFERENCES)

    def _limit(self, what, size):
        key = what, size
        words = (what, "float", "out", max(4, size))
        if key not in self.plans:
            times, _ = self._times(self.bare, words, (2, 3, 1))
            self.plans[key] = plan(max(0.02, min(times)), self.budget_us / 2, BLOCK_US)
        times, _ = self._times(self.bare, words, self.plans[key])
        self.limits.setdefault(key, []).append(statistics.median(times))

    def _check(self, name, row, words):
        answers = self.jobs[name].ask(" ".join(map(str, ("check", *words))))
        wrong = sum(answer["wrong"] for answer in answers)
        if wrong:
            self.wrong[name, row] = wrong

    def _measure(self, name, row, figures):
        """(microseconds of a call, p99), or None if the contender lacks this row."""
        words = (row.collective, row.element, "in" if row.in_place else "out", row.bytes)
        if name in figures.cannot:
            return None
        job, key = self.jobs[name], (name, row)
        if key not in self.plans:
            times, reason = self._times(job, words, (2, 3, 1))
            if reason:
                figures.cannot[name] = reason
                return None
            # Inputs that are written between blocks cost no time, but then each block is a call.
            block_us = 0 if self.written and row.bytes > MAX_WRITTEN_WITHIN else self.block_us
            self.plans[key] = self._plan(job, words, max(0.05, min(times)), block_us)
            self._check(name, row, words)
        whole, tail = self.plans[key]
        times, _ = self._times(job, words, whole)
        singles = times if whole[2] == 1 else self._times(job, words, tail)[0]
        return statistics.median(times), percentile_99(singles)

    def _plan(self, job, words, call_us, block_us):
        """Plans that keep to the budget, also where a library's barriers are slow."""
        warmup, blocks, calls = first = plan(call_us, 2000, block_us)
        began = time.monotonic()
        times, _ = self._times(job, words, first)
        call_us = max(0.02, statistics.median(times))
        spent_us = (time.monotonic() - began) * 1e6 - (warmup + blocks * calls) * call_us
        barrier_us = max(0, spent_us) / (blocks + 1)
        return (plan(call_us, self.budget_us, block_us, barrier_us),
                tail_plan(call_us, self.budget_us, barrier_us))

    def _group(self, row, turn):
        """One row in one round."""
        figures = self.figures.setdefault(row, Figures())
        names = list(self.jobs)
        shift = turn % len(names)
        us, p99_us = {}, {}
        for name in names[shift:] + names[:shift]:
            try:
                found = self._measure(name, row, figures)
            except JobFailed as failed:
                self.problems[name] = str(failed)
                del self.jobs[name]
                self.say(f"{name} is left out from here on: {failed}", lasting=True)
                continue
            if found:
                us[name], p99_us[name] = found
        figures.us.append(us)
        figures.p99_us.append(p99_us)

    def _limits(self, rows):
        self._limit("line", 4)
        for size in sorted({row.bytes for row in rows if row.collective != "barrier"}):
            self._limit("cache", size)
            self._limit("bypass", size)
            self._limit("stream", size)

    def usual(self):
        """The usual times of the reference exchanges so far."""
        return usual_references([pair for figures in self.figures.values()
                                 for both in figures.references for pair in both])

    def _lacking(self, rows, rounds):
        usual = self.usual()
        return [row for row in rows
                if len(kept_rounds(self.figures[row].references, usual)) < rounds]

    def _round(self, rows, turn, title):
        began = time.monotonic()
        for index, row in enumerate(rows):
            left = (time.monotonic() - began) / max(1, index) * (len(rows) - index)
            self.say(f"{title}, {row.collective} of {row.bytes} bytes" +
                     (f", {left:.0f} s left of it" if index > 0 else ""))
            before = self._reference() if self.bare else None
            self._group(row, turn)
            after = self._reference() if self.bare else None
            self.figures[row].references.append((before, after))
            if not self.jobs:
                return

    def run(self, rows, rounds):
        for turn in range(rounds):
            if self.bare:
                self._limits(rows)
            self._round(rows, turn, f"round {turn + 1} of {rounds}")
        for turn in range(rounds, rounds + rounds // 2 if self.bare and self.jobs else 0):
            lacking = self._lacking(rows, rounds)
            self._round(lacking, turn, f"{len(lacking)} rows again, as the machine was slow")
