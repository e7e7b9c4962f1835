"""The summary of a campaign: how often each fault was tried, how soon the other ranks got the
error, whether they named the right culprit, and what escaped."""
import collections

from faults import FAULTS, TOLD
from verdict import PROMISES


def row_of(verdict):
    """A trial as it is kept."""
    scenario = verdict.scenario
    told = [t for t in verdict.tellings if t.rank not in scenario.victims or scenario.cut]
    return {
        "seed": scenario.seed, "fault": verdict.fault.name, "phase": scenario.phase.name,
        "ranks": scenario.ranks, "processes": len(scenario.host_of_process),
        "hosts": scenario.hosts, "transport": scenario.settings["GYRE_TRANSPORT"],
        "blocking": scenario.blocking, "aftermath": scenario.aftermath,
        "struck": verdict.strike_ns is not None, "ending": verdict.ending,
        "told": len(told), "last_told_s": max((t.seconds for t in told), default=None),
        "blamed_right": sum(verdict.blames), "blamed": len(verdict.blames),
        "hung": verdict.trial.hung,
        "escapes": [{"promise": e.promise, "reason": e.reason} for e in verdict.escapes],
    }


def quantile(values, share):
    """The nearest that was measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def seconds(value):
    return "-" if value is None else f"{value:.3f}"


class Tally:
    def __init__(self):
        self.rows, self.left_out = [], collections.Counter()
        self.disturbed = 0  # runs that were made again

    def add(self, verdict):
        self.rows.append(row_of(verdict))

    def escaped(self):
        return [row for row in self.rows if row["escapes"]]

    def by_fault(self):
        table = []
        for fault in FAULTS:
            rows = [row for row in self.rows if row["fault"] == fault.name]
            if not rows:
                continue
            # In init, who has not joined is waited for; at the end, nobody may call any more.
            times = [row["last_told_s"] for row in rows if row["last_told_s"] is not None and
                     row["ending"] == TOLD and row["phase"] != "init"]
            blamed = sum(row["blamed"] for row in rows)
            table.append({
                "fault": fault.name, "runs": len(rows),
                "struck": sum(row["struck"] for row in rows), "told": len(times),
                "p50_s": quantile(times, 0.5), "p99_s": quantile(times, 0.99),
                "blamed": blamed, "blamed_right": sum(row["blamed_right"] for row in rows),
                "escaped": sum(bool(row["escapes"]) for row in rows)})
        return table

    def shown(self):
        lines = [f"{'fault':14} {'runs':>5} {'struck':>6} {'told':>5} {'p50 s':>7} {'p99 s':>7} "
                 f"{'right blame':>14} {'escaped':>7}"]
        for row in self.by_fault():
            right = f"{row['blamed_right']} of {row['blamed']}" if row["blamed"] else "-"
            lines.append(f"{row['fault']:14} {row['runs']:5} {row['struck']:6} {row['told']:5} "
                         f"{seconds(row['p50_s']):>7} {seconds(row['p99_s']):>7} {right:>14} "
                         f"{row['escaped']:7}")
        promises = collections.Counter(promise for row in self.escaped() for promise in
                                       {escape["promise"] for escape in row["escapes"]})
        lines += [f"{promise} ({PROMISES[promise]}): broken in {count} runs"
                  for promise, count in sorted(promises.items())]
        lines += [f"left out, as {reason}: {count}" for reason, count in self.left_out.items()]
        if self.disturbed:
            lines.append(f"{self.disturbed} runs made again, as the machine stood still in them")
        lines.append(f"{len(self.rows)} runs, {len(self.escaped())} with an escape")
        return "\n".join(lines)

    def document(self):
        return {"schema": "gyre-campaign-1", "faults": self.by_fault(), "rows": self.rows,
                "left_out": dict(self.left_out), "disturbed": self.disturbed}
