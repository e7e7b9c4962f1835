"""Turns a seed into a scenario: the ranks, their processes and hosts, their calls, and the fault.
Everything follows from the seed, not from the machine."""
import dataclasses
import random

from faults import ABSENT_S, BY_NAME, CALL_S, FAULTS, INIT_S, LIVENESS_S, WELL
from phases import CALLS, MESSAGES, phases_of
from syscalls import ERRORS, injection

HOLD_MS = 60  # a rank comes so late that the victim surely waits in the call


@dataclasses.dataclass
class Scenario:
    seed: int
    fault: object
    phase: object
    process_of_rank: list
    host_of_process: list
    blocking: bool
    aftermath: str
    settings: dict
    errands: list = dataclasses.field(default_factory=list)
    comms: dict = dataclasses.field(default_factory=dict)  # their ranks
    sabotages: list = dataclasses.field(default_factory=list)
    victims: list = dataclasses.field(default_factory=list)  # ranks that may be named
    at: int = 0            # the errand at which it strikes
    closing: int = 0       # the first errand that needs everybody and comes after it
    stop_s: float = None   # how long a stopped process is stopped; None: for good
    cut: tuple = None      # (host, host)
    heal_s: float = None
    tracer: list = None    # options of strace for the first victim's process
    own_settings: dict = dataclasses.field(default_factory=dict)  # of that process alone
    replay: str = ""       # the options that draw it again

    @property
    def ranks(self):
        return len(self.process_of_rank)

    @property
    def hosts(self):
        return max(self.host_of_process) + 1

    def ranks_of_process(self, process):
        return [rank for rank, p in enumerate(self.process_of_rank) if p == process]

    def ranks_of_host(self, host):
        return [rank for rank, p in enumerate(self.process_of_rank)
                if self.host_of_process[p] == host]

    def script(self):
        """As campaign_rank reads it."""
        survivors = [rank for rank in range(self.ranks) if rank not in self.victims]
        lines = [f"world processes={joined(self.process_of_rank)} blocking={int(self.blocking)} "
                 f"aftermath={self.aftermath} survivors={joined(survivors)} "
                 f"attended={self.process_of_rank[self.victims[0]] if self.tracer else -1}"]
        lines += [errand["verb"] + "".join(f" {key}={joined(value)}"
                                           for key, value in errand.items() if key != "verb")
                  for errand in self.errands]
        lines += ["sabotage " + " ".join(f"{key}={value}" for key, value in one.items())
                  for one in self.sabotages]
        return "\n".join(lines) + "\n"

    def shown(self):
        hosts = [f"{host}: " + ", ".join(
            f"process {p} (ranks {joined(self.ranks_of_process(p))})"
            for p, h in enumerate(self.host_of_process) if h == host)
            for host in range(self.hosts)]
        more = {"stopped for": self.stop_s, "cut between hosts": self.cut,
                "healed after": self.heal_s,
                "traced by": self.tracer and " ".join(self.tracer)}
        extra = "".join(f"; {name} {value}" for name, value in more.items() if value is not None)
        return "\n".join([
            f"seed {self.seed}: {self.fault.name} ({self.fault.doing}) in {self.phase.name}",
            f"  culprits {joined(self.victims) or 'none'}; has to end: {self.fault.ending}{extra}",
            *("  host " + host for host in hosts),
            "  " + " ".join(f"{key}={value}" for key, value in self.settings.items()) +
            ("" if self.blocking else " non-blocking"),
            *(f"  {'*' if number == self.at else ' '}{number:3} {line}" for number, line in
              enumerate(self.script().splitlines()[1:1 + len(self.errands)])),
            f"  {'*' if self.at == len(self.errands) else ' '}{len(self.errands):3} destroy",
            *("      " + line for line in self.script().splitlines()[1 + len(self.errands):]),
            f"      ranks that were told: {self.aftermath}"])


def joined(value):
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class Draw:
    """One scenario in the making."""

    def __init__(self, seed, only=None):
        self.random = random.Random(seed)
        chosen = self.weighted(FAULTS)
        self.fault = BY_NAME[only] if only else chosen
        self.phase = self.weighted(phases_of(self.fault.within))
        self.scenario = self.world(seed)
        self.size = self.scenario.ranks
        self.victim = self.random.randrange(self.size)
        self.queues = self.random.choice([["thread"], ["thread", "stream"], ["thread", "caller"],
                                          ["stream"], ["thread", "stream", "caller"]])

    def weighted(self, rows):
        return self.random.choices(rows, [row.weight for row in rows])[0]

    def one_in(self, chances):
        return self.random.randrange(chances) == 0

    # ------------------------------------------------------------------ the world

    def world(self, seed):
        choose = self.random
        needs_router = "nft" in self.fault.needs
        most = choose.choice([3, 4, 4, 6, 8, 16])
        size = choose.randint(max(2, self.fault.min_ranks), most)
        hosts = choose.choice([2, 2, 3]) if needs_router else choose.choice([1, 1, 1, 2, 3])
        hosts = min(hosts, size)
        processes = size if choose.random() < 0.6 else choose.randint(max(hosts, 2), size)
        process_of_rank = sorted(list(range(processes)) +
                                 [choose.randrange(processes) for _ in range(size - processes)])
        host_of_process = sorted(list(range(hosts)) +
                                 [choose.randrange(hosts) for _ in range(processes - hosts)])
        settings = {"GYRE_LIVENESS_TIMEOUT": LIVENESS_S, "GYRE_INIT_TIMEOUT": INIT_S,
                    "GYRE_TIMEOUT": ABSENT_S if self.fault.name == "absent" else CALL_S}
        transport = choose.choice(["shm", "tcp"] if hosts == 1 else ["shm,tcp", "shm,tcp", "tcp"])
        settings["GYRE_TRANSPORT"] = "self," + transport
        # Without a word of it, data in clear between hosts is warned of.
        settings["GYRE_TCP_SECURITY"] = "tls" if self.one_in(8) else "ticket"
        if self.one_in(8):
            settings["GYRE_BUFFSIZE"] = 8192
        if self.one_in(8):
            settings["GYRE_TCP_SOCKETS"] = 2
        return Scenario(seed, self.fault, self.phase, process_of_rank, host_of_process,
                        blocking=choose.random() < 0.8, settings=settings,
                        aftermath=choose.choice(["linger", "destroy", "abort", "none", "recover"]),
                        comms={0: list(range(size))})

    # ------------------------------------------------------------------ errands

    def count(self):
        blocks = self.size
        most = 1 << 20 if self.size <= 4 else 1 << 18
        return min(self.random.choice([1, 2, 100, 3000, 20_000, 100_000, 300_000, 1 << 20]),
                   most) // blocks + 1

    def errand(self, verb, comm=0, ranks=None):
        made = {"verb": verb, "comm": comm, "count": self.count(),
                "memory": self.random.choice(["heap", "lent", "lent"]),
                "queue": self.random.choice(self.queues),
                "root": self.random.randrange(len(self.scenario.comms[comm]))}
        if verb in ("all-reduce", "broadcast") and self.one_in(2):
            made["place"] = "in"
        if ranks is not None:
            made["ranks"] = ranks
        return made

    def any_errand(self):
        """Of all ranks of a communicator, for all communicators of one level."""
        verb = self.random.choice(CALLS)
        children = [comm for comm in self.scenario.comms if comm != 0]
        if children and self.one_in(2):
            return [self.errand(verb, comm) for comm in children]
        return [self.errand(verb)]

    def split(self, without=None):
        """The world's, in two or three; or all but one rank."""
        first = max(self.scenario.comms) + 1
        colors = self.random.choice([1, 2, 2, 3])
        children = [first + self.random.randrange(colors) for _ in range(self.size)]
        if without is not None:
            children = [-1 if rank == without else first for rank in range(self.size)]
        for rank, child in enumerate(children):
            if child >= 0:
                self.scenario.comms.setdefault(child, []).append(rank)
        return {"verb": "split", "comm": 0, "children": children}

    def rest(self, ms, ranks=None):
        return {"verb": "rest", "ms": ms, **({"ranks": ranks} if ranks else {})}

    def body(self, least, most):
        errands = []
        for _ in range(self.random.randint(least, most)):
            errands += self.any_errand()
        return errands

    def closing(self, comm=0):
        return [dict(self.errand("all-reduce", comm), count=count) for count in (1, 1000, 1)]

    def draw(self):
        scenario = self.scenario
        errands = scenario.errands
        errands.append({"verb": "init"})
        if self.fault.name in ("farewell", "farewell-kill"):
            self.draw_farewell()
            return scenario
        if self.phase.kind != "init" and self.one_in(3):
            errands.append(self.split())
        if self.phase.kind != "init":
            errands += self.body(0, 4)
        scenario.at = 0 if self.phase.kind == "init" else len(errands)
        self.strike()
        errands += self.body(0, 3)
        scenario.closing = len(errands)
        errands += self.closing()
        if self.phase.kind == "destroy":
            scenario.at = len(errands)
            scenario.closing = scenario.at
        if len(scenario.comms) > 1 and scenario.aftermath in ("linger", "none"):
            scenario.aftermath = "abort"  # or others wait for who has stopped calling
        self.sabotage()
        return scenario

    def strike(self):
        """The errand at which the fault strikes."""
        errands, kind = self.scenario.errands, self.phase.kind
        if kind == "call":
            errand = self.errand(self.phase.name)
            if self.fault.name == "leave":
                errand["leaver"] = self.victim
            errands.append(errand)
        elif kind == "split":
            errands.append(self.split())
        elif kind == "rest":
            errands.append(self.rest(40))
        held = kind in ("call", "split", "init") and self.one_in(2)
        late = [rank for rank in range(self.size) if self.scenario.process_of_rank[rank] !=
                self.scenario.process_of_rank[self.victim]]
        if self.fault.name in ("late", "absent"):
            errands[-1]["late"] = f"{self.victim}:{1500 if self.fault.name == 'late' else 3500}"
        elif held and late:
            errands[self.scenario.at]["late"] = f"{self.random.choice(late)}:{HOLD_MS}"
        self.after_us = self.random.randrange(5000, HOLD_MS * 700) if held else \
            self.random.choice([0, self.random.randrange(2000), self.random.randrange(30_000)])

    def draw_farewell(self):
        """A rank leaves, the lowest one often, and the others go on among themselves."""
        scenario, errands = self.scenario, self.scenario.errands
        leaver = self.random.choice([0, 0, self.victim])
        others = [rank for rank in range(self.size) if rank != leaver]
        errands.append(self.split(without=leaver))
        child = max(scenario.comms)
        for _ in range(self.random.randint(0, 2)):
            errands.append(self.errand(self.random.choice(CALLS)))
        scenario.at = len(errands)
        errands.append(dict(self.rest(1, [leaver]), leaver=leaver))

        def talk():
            if self.one_in(2):
                return self.errand(self.random.choice(CALLS), child)
            return self.errand(self.random.choice(MESSAGES), 0, others)

        errands += [self.rest(50, others)] + [talk() for _ in range(self.random.randint(1, 4))]
        scenario.aftermath = self.random.choice(["destroy", "abort"])
        if self.fault.name == "farewell":
            scenario.closing = len(errands)
            errands += self.closing(child)
            return
        self.victim = self.random.choice([rank for rank in others
                                          if scenario.process_of_rank[rank] !=
                                          scenario.process_of_rank[leaver]] or others)
        scenario.at = len(errands)
        errands.append(self.rest(40, others))
        scenario.closing = len(errands)
        errands += [talk() for _ in range(2)] + self.closing(child)
        self.after_us = self.random.randrange(30_000)
        self.sabotage()

    # ------------------------------------------------------------------ the fault

    def sabotage(self):
        scenario, fault, name = self.scenario, self.fault, self.fault.name
        process = scenario.process_of_rank[self.victim]
        together = scenario.ranks_of_process(process)
        if fault.ending != WELL or name == "pause":
            scenario.victims = [self.victim] if name in ("abort", "leave", "absent") else together
        if name in ("pause", "freeze"):
            scenario.stop_s = self.random.uniform(0.05, 0.5) * LIVENESS_S if name == "pause" else \
                self.random.uniform(LIVENESS_S + 1.2, LIVENESS_S + 3)
        if "nft" in fault.needs:
            first = scenario.host_of_process[process]
            second = self.random.choice([host for host in range(scenario.hosts) if host != first])
            scenario.cut = (first, second)
            scenario.victims = scenario.ranks_of_host(first) + scenario.ranks_of_host(second)
            scenario.heal_s = 0.25 * LIVENESS_S if name == "blip" else None
        if "strace" in fault.needs:
            call = self.random.choice(sorted(ERRORS))
            what = "signal=KILL" if name == "call-kills" else \
                "error=" + self.random.choice(ERRORS[call])
            scenario.tracer = injection(call, what, self.random.randint(1, 40))
            return
        if name == "fifo":
            scenario.own_settings = {"GYRE_DEBUG_FILE": "pipe", "GYRE_DEBUG": "INFO"}
        if name in ("unread", "unheard"):
            scenario.settings["GYRE_DEBUG"] = "TRACE"
        if name in ("none", "late", "load", "leave", "absent", "fifo", "unread", "unheard"):
            return
        amount = {"descriptors": self.random.choice([0, 0, 1, 2, 5]),
                  "memory": self.random.choice([0, 64, 1024, 9000]), "fork-hold": 3000}
        # A fork within a group is prepared long before.
        at = 0 if name == "fork-group" else scenario.at
        scenario.sabotages.append({"errand": at, "rank": self.victim,
                                   "after_us": self.after_us, "kind": fault.sabotage,
                                   "amount": amount.get(name, 0)})


def draw_scenario(seed, only=None):
    """Of any fault, or of this one."""
    scenario = Draw(seed, only).draw()
    scenario.replay = f"--seed {seed}" + (f" --fault {only}" if only else "")
    return scenario
