"""Judges a trial: did it end as its fault requires? Each broken promise is an escape: a letter for
the promise and one line."""
import collections
import re

from faults import (ABORT_S, BOUNDS, CALL_S, EITHER, INIT_S, LIVENESS_S, MISMATCH, REMOTE,
                    SYSTEM, TIMEOUT, TOLD, WELL, bound_s)

Escape = collections.namedtuple("Escape", "promise reason")
Told = collections.namedtuple("Told", "rank errand code text seconds ns")

# Promises, as the summary prints them.
PROMISES = {
    "S1": "what succeeds has the right bits",
    "S4": "memory is untouched after its call has returned",
    "L1": "everybody is told in time",
    "L2": "gyreCommAbort returns in time",
    "L3": "who is named is to blame",
    "R": "nothing is left behind, nobody crashes",
    "W": "what may not fail does not, and says nothing",
}
INTERNAL, INVALID_USAGE = 3, 5
ALIKE_S = 0.1  # ranks that wait for each other began so close together
CRASH_WORDS = re.compile(r"Sanitizer|runtime error|terminate called|Assertion|stack smashing|"
                         r"free\(\)|corrupted")
KILLED = {"kill": -9, "fork-hold": -9, "coma": -9, "call-kills": -9, "farewell-kill": -9}


def reporter(text, maker):
    """The member whose error it was, if it was another one's."""
    if "(reported by the process that made the unique id)" in text:
        return {maker}
    found = re.search(r"\(reported by rank (\d+)\)", text)
    return {int(found.group(1))} if found else set()


def blamed(text, maker):
    """The members that an error names first; the process of member `maker` made the unique id."""
    text = re.sub(r"\(reported by [^)]*\)", "", text)
    text = re.sub(r"^gyre\w+: ", "", text)
    text = re.sub(r"waited [\d.]+ s[^:]*: ", "", text)  # whom it waited for may wait as well
    made = re.search(r"the process that made the unique id", text)
    named = re.search(r"\branks? (\d+(?:(?:-|, | and )\d+)*)", text)
    if made and (not named or made.start() < named.start() or "the way from rank" in text):
        return {maker}
    ranks = set()
    for part in re.split(r", | and ", named.group(1)) if named else []:
        first, _, last = part.partition("-")
        ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


class Verdict:
    def __init__(self, trial):
        self.trial, self.scenario = trial, trial.scenario
        self.fault = self.scenario.fault
        self.events = sorted(trial.events)
        self.escapes, self.tellings = [], []
        self.stalled_s = 0.0  # the machine, meanwhile
        self.blames = []  # of each rank that was told: is it right?
        self.by_rank = collections.defaultdict(list)
        for event in self.events:
            self.by_rank[event.rank].append(event)
        self.strike_ns = self.when_it_struck()
        self.ending = self.due_ending()
        self.judge()

    def escape(self, promise, reason):
        self.escapes.append(Escape(promise, reason))

    # ------------------------------------------------------------------ the fault

    def errand_at(self, rank, ns):
        """The last errand that the rank had begun then."""
        begun = [int(e.rest) for e in self.by_rank[rank] if e.word == "begin" and e.ns <= ns]
        return max(begun, default=-1)

    def when_it_struck(self):
        scenario, trial = self.scenario, self.trial
        if trial.struck_ns is not None:
            return max([trial.struck_ns, *self.went_on_ns()])
        if self.fault.name in ("leave", "farewell"):
            leaver = next(errand["leaver"] for errand in scenario.errands if "leaver" in errand)
            return next((e.ns for e in self.by_rank[leaver] if e.word == "begin" and
                         int(e.rest) == scenario.at), None)
        if scenario.tracer:
            victim = trial.processes[trial.victim_process()]
            return victim.ended_ns if victim.popen.returncode == -9 else None
        return None

    def went_on_ns(self):
        """Who stops itself says so first. On a busy machine its threads go on for a while."""
        if self.fault.sabotage != "stop":
            return []
        until_ns = self.trial.struck_ns + 0.9e9 * LIVENESS_S  # a longer one is not taken for life
        return [e.ns for victim in self.scenario.victims for e in self.by_rank[victim]
                if e.ns < until_ns]

    def due_ending(self):
        """A fault that came late may not be noticed; one that did not come must not be."""
        scenario = self.scenario
        # Some are there from the beginning, or come unseen.
        if self.fault.ending == WELL or self.fault.name in ("absent", "fifo") or scenario.tracer:
            return self.fault.ending
        if self.strike_ns is None:
            return WELL
        if self.fault.name == "abort" and not any(e.word == "aborted" for e in self.events):
            return WELL  # it had no communicator then
        if self.fault.bound == "silence" and scenario.phase.kind == "init":
            return EITHER  # who has not joined is waited for
        reached = max(self.errand_at(victim, self.strike_ns) for victim in scenario.victims)
        if self.fault.ending == TOLD and reached >= min(scenario.closing, len(scenario.errands)):
            return EITHER  # the others may have all that they need of the victims
        return self.fault.ending

    def cause_ns(self, rank, errand):
        """Since when the rank could know of something wrong with the errand's communicator, and who
        may be named then."""
        scenario = self.scenario
        comm = self.errand(errand).get("comm", 0)
        others = [r for r in scenario.comms[comm] if r != rank]
        told = {r: e.ns for r in others for e in self.by_rank[r] if e.word == "told"}
        culprits = set(scenario.victims)
        if culprits & set(scenario.comms[comm]):
            return self.strike_ns, culprits | {r for r in told if len(scenario.comms) > 1}
        return min(told.values(), default=self.strike_ns), culprits | set(told)

    # ------------------------------------------------------------------ the promises

    def judge(self):
        for event in self.events:
            if event.word == "wrong":
                self.escape("S1", f"rank {event.rank}: errand {event.rest}")
            elif event.word == "touched":
                self.escape("S4", f"rank {event.rank}: before errand {event.rest}")
            elif event.word == "aborted":
                self.judge_abort(event)
            elif event.word == "child_hangs":
                self.escape("L1", f"a forked child of rank {event.rank}'s process hangs")
            elif event.word == "child_died":
                self.escape("R", f"a forked child of rank {event.rank} died of {event.rest}")
            elif event.word == "child_told" and int(event.rest.split()[0]) != INVALID_USAGE:
                self.escape("W", f"a forked child of rank {event.rank} is told {event.rest}")
            elif event.word == "unrecovered" and not self.meets_nobody(event):
                self.escape("W", f"rank {event.rank} did not recover: {event.rest}")
            elif event.word == "unknown":
                self.escape("R", f"an unknown sabotage: {event.rest}")
        self.judge_hangs()
        self.judge_tellings()
        if self.ending == TOLD and not self.trial.hung:
            self.judge_successes()
        self.judge_ends()

    def meets_nobody(self, event):
        """Who had all that it needs recovers from nothing, and ranks that were told at different
        times wait no longer for each other than the time to join."""
        told = [max((e.ns for e in self.by_rank[rank] if e.word == "told"), default=None)
                for rank in range(self.scenario.ranks) if rank not in self.scenario.victims]
        if None in told:
            return True
        apart_ns = max(told) - min(told)
        return event.rest.startswith(f"{TIMEOUT} ") and apart_ns >= (INIT_S - 0.1) * 1e9

    def judge_abort(self, event):
        seconds = int(event.rest.split()[1]) / 1e9
        if seconds > ABORT_S:
            self.escape("L2", f"rank {event.rank}: gyreCommAbort took {seconds:.1f} s")

    def judge_hangs(self):
        if not self.trial.hung:
            return
        for process in self.trial.processes:
            if process.is_done():
                continue
            for rank in set(process.ranks) - process.quiet:
                mine = [e for e in self.by_rank[rank] if e.word in ("begin", "end", "told")]
                doing = f"{mine[-1].word} {mine[-1].rest}" if mine else "nothing yet"
                self.escape("L1", f"rank {rank} hangs after: {doing}")
        if all(p.is_done() for p in self.trial.processes):
            ends = [p.number for p in self.trial.processes if p.ended_ns is None]
            self.escape("L1", f"processes {ends} do not end")

    def judge_tellings(self):
        for rank in range(self.scenario.ranks):
            for event in self.by_rank[rank]:
                if event.word == "told":
                    self.judge_telling(rank, event)

    def judge_telling(self, rank, event):
        errand, code, text = event.rest.split(" ", 2)
        errand, code = int(errand), int(code)
        begun_ns = max((e.ns for e in self.by_rank[rank]
                        if e.word == "begin" and int(e.rest) == errand), default=event.ns)
        cause_ns, culprits = self.cause_ns(rank, errand)
        told = Told(rank, errand, code, text, (event.ns - max(begun_ns, cause_ns or 0)) / 1e9,
                    event.ns)
        self.tellings.append(told)
        # What other threads of a process that exits are told matters to nobody.
        if code == INTERNAL and not (rank in self.scenario.victims and self.fault.name == "exit"):
            self.escape("W", f"rank {rank} in errand {errand}: {text}")
        if self.ending == WELL:
            self.escape("W", f"rank {rank} is told {code} in errand {errand}: {text}")
        elif rank not in self.scenario.victims or self.scenario.cut:
            self.judge_time(told, cause_ns)
            self.judge_blame(told, culprits)
            self.judge_code(told, cause_ns)

    def judge_time(self, told, cause_ns):
        limit = bound_s(self.fault, self.scenario.hosts, told.errand == 0)
        if cause_ns != self.strike_ns:
            limit = max(limit, BOUNDS["death"][1])
        if self.waits_for_any(told):
            limit = max(limit, BOUNDS["deadline"][0])
        if told.seconds > limit:
            self.escape("L1", f"rank {told.rank} is told after {told.seconds:.2f} s, not "
                              f"{limit:.2f}, in errand {told.errand}: {told.text}")

    def judge_blame(self, told, culprits):
        """Members are named by their place in the communicator, in a split in either."""
        errand = self.errand(told.errand)
        lists = [self.scenario.comms[errand.get("comm", 0)]]
        if errand.get("verb") == "split":
            place = lists[0].index(told.rank)
            lists.append(self.scenario.comms.get(errand["children"][place], []))
        readings = []
        for members in lists:
            readings += [{members[member] for member in named if member < len(members)}
                         for named in self.readings(told)]
        is_right = any(named and named <= culprits for named in readings)
        self.blames.append(is_right)
        if not is_right:
            self.escape("L3", f"rank {told.rank} names {[sorted(named) for named in readings]}, "
                              f"not {sorted(culprits)}: {told.text}")

    def readings(self, told):
        """Who lacks something, or whose call failed, says so himself."""
        if told.code == SYSTEM or self.scenario.tracer:
            return [blamed(told.text, 0), reporter(told.text, 0)]
        return [blamed(told.text, 0)]

    def waits_for_any(self, told):
        """Who has left is not missed by who takes from any rank, while others may still send. Such
        a rank hears at its deadline, and others hear while it waits, or when it is told. Deadlines
        of several ranks pass at about one time: whichever is first tells the rest."""
        if self.fault.name != "leave":
            return False
        if told.code == TIMEOUT and self.errand(told.errand).get("verb") == "anyone":
            return "any rank" in told.text  # it says so itself
        return any(self.took_from_any(rank, told.ns) for rank in self.by_rank)

    def took_from_any(self, rank, ns):
        """Whether the rank had waited so for as long as calls may, then or shortly before."""
        for number, begun_ns in self.begun(rank):
            ended_ns = min((event.ns for event in self.by_rank[rank] if event.ns >= begun_ns and
                            event.word in ("end", "told") and
                            event.rest.split()[0] == str(number)), default=ns)
            if (self.errand(number).get("verb") == "anyone" and
                    ended_ns - begun_ns >= (CALL_S - ALIKE_S) * 1e9 and
                    ns - ended_ns <= BOUNDS["death"][1] * 1e9):
                return True
        return False

    def begun(self, rank):
        return [(int(e.rest), e.ns) for e in self.by_rank[rank] if e.word == "begin"]

    def judge_code(self, told, cause_ns):
        known = set(self.fault.codes)
        if cause_ns != self.strike_ns or len(self.scenario.comms) > 1:
            known |= {REMOTE, MISMATCH}
        if told.errand == 0 or self.errand(told.errand).get("verb") == "split":
            known |= {TIMEOUT}
        if self.waits_for_any(told):
            known |= {TIMEOUT}
        if told.code not in known:
            self.escape("W", f"rank {told.rank} is told {told.code} in errand {told.errand}: "
                             f"{told.text}")

    def errand(self, number):
        errands = self.scenario.errands
        return errands[number] if 0 <= number < len(errands) else {}

    def judge_successes(self):
        """Nobody may go on for long with a communicator that is broken, or to the end."""
        scenario = self.scenario
        ended = {scenario.process_of_rank[victim] for victim in scenario.victims}
        for rank in range(scenario.ranks):
            words = {event.word for event in self.by_rank[rank]}
            if scenario.process_of_rank[rank] in ended or words & {"left", "stranded"}:
                continue
            if not words & {"told", "wrong"} and not self.was_done_in_time(rank):
                self.escape("L1", f"rank {rank} is told nothing")
            if any(e.word == "end" and e.rest == "-1 0" for e in self.by_rank[rank]):
                self.escape("L1", f"rank {rank}'s call after the error succeeds")
            for number in self.late_successes(rank):
                self.escape("L1", f"rank {rank}'s errand {number} succeeds long after")

    def was_done_in_time(self, rank):
        """A process that execs goes on for milliseconds, and what is on its way passes a cut: all
        the rest may happen then."""
        if self.fault.name not in ("exec", "cut", "one-way") or self.strike_ns is None:
            return False
        limit_ns = bound_s(self.fault, self.scenario.hosts, self.scenario.at == 0) * 1e9
        ends = [e.ns for e in self.by_rank[rank] if e.word == "end"]
        return bool(ends) and max(ends) <= self.strike_ns + limit_ns

    def late_successes(self, rank):
        """Errands with a culprit's communicator that began when all must have known, and went
        well."""
        if self.strike_ns is None:
            return []
        limit_ns = bound_s(self.fault, self.scenario.hosts, self.scenario.at == 0) * 1e9
        late = [int(e.rest) for e in self.by_rank[rank]
                if e.word == "begin" and e.ns > self.strike_ns + limit_ns]
        went_well = {e.rest for e in self.by_rank[rank] if e.word == "end"}
        return [number for number in late if f"{number} 0" in went_well and
                self.errand(number).get("verb") not in (None, "rest") and
                set(self.scenario.victims) & set(self.scenario.comms[self.errand(number)["comm"]])]

    def judge_ends(self):
        scenario, trial = self.scenario, self.trial
        for process in trial.processes:
            code = process.popen.returncode
            is_victim = process.number == trial.victim_process()
            due = {0} | ({KILLED.get(self.fault.name, 0)} if is_victim else set())
            if code not in due and not (trial.hung and code == -9):
                last_words = f": {first_line(process.text)}" if process.text else ""
                self.escape("R", f"process {process.number} (ranks {process.ranks}) ends with "
                                 f"{code}{last_words}")
            if CRASH_WORDS.search(process.text):
                self.escape("R", f"process {process.number} says: {first_line(process.text)}")
            elif self.ending == WELL and process.text and not self.escapes:
                self.escape("W", f"process {process.number} says: {first_line(process.text)}")
        if not trial.hung:
            for what in trial.left_behind:
                self.escape("R", f"left behind: {what}")


def first_line(text):
    return text.strip().splitlines()[0]
