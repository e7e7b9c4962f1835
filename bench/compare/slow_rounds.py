"""The statistics of a comparison.

The rule for slow rounds: a row's round is left out if the machine was slow in it. It was slow if
one of the two reference exchanges, before the row or after it, took more than SLOW times as long as
usual: as the lower quarter of all its times in this run. Rows that lack rounds are measured again,
half as often as asked for at most. A row of which fewer than half of the rounds are left then says
nothing: it is `disturbed`, and no mean takes it in.

A ratio is the least of the peers' medians over Gyre's: above 1 Gyre is faster than all of them. Its
interval is the 95 % interval of the bootstrap: rounds are drawn anew, what all contenders did in
one round stays together, and the best peer is chosen anew each time."""
import math
import random
import statistics

SLOW = 1.5
DRAWS = 2000


def usual_references(pairs):
    """The lower quartile of each of the reference exchanges over the pairs."""
    return tuple(sorted(times)[(len(times) - 1) // 4] for times in zip(*pairs))


def is_slow(pair, usual):
    return any(value > SLOW * time for value, time in zip(pair, usual))


def kept_rounds(references, usual):
    """Indices of the rounds that count. `references` has (before, after) of each round; None where
    there was no reference."""
    return [index for index, (before, after) in enumerate(references)
            if before is None or not (is_slow(before, usual) or is_slow(after, usual))]


def best_ratio(rounds, own="gyre"):
    """(ratio, best peer) of rounds, each {contender: microseconds} of the same contenders."""
    medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    best = min((name for name in medians if name != own), key=medians.get)
    return medians[best] / medians[own], best


def ratio_interval(rounds, own="gyre"):
    chance = random.Random(1)
    ratios = sorted(best_ratio(chance.choices(rounds, k=len(rounds)), own)[0]
                    for _ in range(DRAWS))
    return ratios[DRAWS * 25 // 1000], ratios[DRAWS * 975 // 1000]


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


class Summary:
    """One row, from the rounds that count."""

    def __init__(self, figures, usual, own="gyre"):
        kept = kept_rounds(figures.references, usual)
        self.measured, self.kept = len(figures.references), len(kept)
        self.disturbed = 2 * self.kept < self.measured or self.kept == 0
        chosen = kept if self.kept else range(self.measured)
        # A contender that failed on the way has no figure from there on.
        names = set.intersection(*(set(figures.us[index]) for index in chosen)) \
            if self.measured else set()
        self.us = {name: statistics.median(figures.us[index][name] for index in chosen)
                   for name in names}
        self.p99_us = {name: statistics.median(figures.p99_us[index][name] for index in chosen)
                       for name in names}
        self.ratio = self.best = self.interval = self.tail_ratio = None
        if own in names and len(names) > 1:
            rounds = [{name: figures.us[index][name] for name in names} for index in chosen]
            self.ratio, self.best = best_ratio(rounds, own)
            self.interval = ratio_interval(rounds, own)
            self.tail_ratio = self.p99_us[self.best] / self.p99_us[own]
