"""The table of faults: what happens, how the job has to end, and how soon the other ranks have to
get the error. A fault has a culprit, a rank or both ends of a link, unless it is harmless."""
import dataclasses

# How a trial has to end.
WELL = "well"      # everybody succeeds, and nothing is logged
TOLD = "told"      # everybody else gets an error that names the culprit
EITHER = "either"  # success or an error that names the culprit, in time

# The limits of the ranks' settings, in seconds.
LIVENESS_S = 1
INIT_S = 5
CALL_S = 8      # GYRE_TIMEOUT, where no rank is absent
ABSENT_S = 2    # and where one is
# What a bound allows beyond what is promised: the machine runs other trials beside this one.
LOAD = 3

SYSTEM, REMOTE, TIMEOUT, MISMATCH = 2, 6, 8, 9


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    doing: str
    ending: str
    bound: str = "death"      # a row of BOUNDS
    kind: str = ""            # what the rank's process does to itself; by default, as it is named
    codes: tuple = (REMOTE,)  # what others may be told
    needs: frozenset = frozenset()
    within: str = "any"       # phases: any | calls | groups | rests (a phase of its own)
    min_ranks: int = 2
    weight: int = 4

    @property
    def sabotage(self):
        return self.kind or self.name


SHORTAGE = (SYSTEM, REMOTE, TIMEOUT, MISMATCH)  # the others hear of it as it was, or of its end
ROUTER = frozenset({"namespaces", "nft"})
STRACE = frozenset({"strace"})

FAULTS = [
    # Nothing may come of these.
    Fault("none", "nothing happens", WELL),
    Fault("late", "a rank comes to a call later than the liveness limit", WELL, within="calls"),
    Fault("load", "other programs compute on all cores", WELL),
    Fault("pause", "a process is stopped for less than the liveness limit", WELL, kind="stop"),
    Fault("blip", "two hosts are cut off from each other, and joined again in time", WELL,
          kind="cue", needs=ROUTER),
    Fault("narrow", "all that goes between hosts goes through a narrow, lossy queue", WELL,
          kind="cue", needs=ROUTER | {"tc"}, weight=2),
    Fault("unread", "nobody reads what the ranks log, and there is much of it", WELL, weight=2),
    Fault("unheard", "who reads what the ranks log has gone", WELL, weight=2),
    Fault("fork-call", "a child of a process calls on its parent's communicator", WELL, weight=2),
    Fault("fork-exit", "a child of a process exits", WELL, weight=2),
    Fault("fork-group", "a process forks within a group, and the child ends it", WELL,
          within="groups", weight=2),
    Fault("farewell", "a rank destroys its communicators and ends, the others go on without it",
          WELL, within="rests", min_ranks=3),
    # Deaths.
    Fault("kill", "a process is killed", TOLD, weight=10),
    Fault("exit", "a process calls exit() while its ranks are in Gyre", TOLD, weight=6),
    Fault("quit", "a process calls _exit()", TOLD),
    Fault("exec", "a process replaces itself by another program", TOLD),
    Fault("fork-hold", "a process is killed, and a child of it keeps its descriptors", TOLD,
          bound="held"),
    Fault("farewell-kill", "a rank leaves for good, and later another one is killed", TOLD,
          kind="kill", within="rests", min_ranks=3, weight=8),
    Fault("abort", "another thread aborts the communicators of a rank", TOLD, weight=8),
    Fault("leave", "a rank destroys its communicators in place of a call", TOLD, within="calls",
          codes=(MISMATCH,), bound="departure"),
    # Silence.
    Fault("freeze", "a process is stopped for longer than the liveness limit, then continued", TOLD,
          bound="silence", kind="stop", weight=8),
    Fault("coma", "a process is stopped and never continued", TOLD, bound="silence", kind="stop"),
    Fault("cut", "two hosts are cut off from each other", TOLD, bound="silence", kind="cue",
          codes=(REMOTE, TIMEOUT), needs=ROUTER, weight=6),
    Fault("one-way", "packets of one host to another are lost", TOLD, bound="silence", kind="cue",
          codes=(REMOTE, TIMEOUT), needs=ROUTER, weight=6),
    Fault("flow", "one connection between two hosts is cut, and no other", EITHER, bound="silence",
          kind="cue", codes=(REMOTE, TIMEOUT), needs=ROUTER, weight=6),
    Fault("absent", "a rank does not call until the deadline of the others", TOLD, bound="absence",
          codes=(TIMEOUT, REMOTE), within="calls"),
    # Shortage and failing system calls.
    Fault("descriptors", "a process may open no more descriptors", EITHER, bound="deadline",
          codes=SHORTAGE),
    Fault("memory", "a process may map no more memory", EITHER, bound="deadline",
          codes=SHORTAGE),
    Fault("file-size", "a process may write no large files", EITHER, bound="deadline",
          codes=SHORTAGE, weight=2),
    Fault("closed", "a process closes all descriptors but the standard ones", EITHER,
          bound="deadline", codes=SHORTAGE),
    Fault("fifo", "a process is to log to a pipe that nobody reads", EITHER, bound="deadline",
          codes=SHORTAGE, weight=2),
    Fault("call-fails", "one system call of a process fails", EITHER, bound="deadline",
          codes=SHORTAGE, needs=STRACE),
    Fault("call-kills", "a process is killed at one of its system calls", EITHER, needs=STRACE),
    Fault("counted", "the system calls of a process are counted", WELL, needs=STRACE, weight=0),
]
BY_NAME = {fault.name: fault for fault in FAULTS}

# Seconds from a fault, or from a later call, to the error: on one host and across hosts.
BOUNDS = {
    "death": (0.1 * LOAD, 1.0),
    "held": (0.1 * LOAD, LIVENESS_S + 1),  # across hosts its sockets do not end with it
    "departure": (1.0, 1.0),
    "silence": (LIVENESS_S + 1, LIVENESS_S + 1),
    "absence": (ABSENT_S + 1, ABSENT_S + 1),
    "deadline": (CALL_S + 1, CALL_S + 1),
}
ABORT_S = 1.0  # gyreCommAbort returns, whatever the peers do


def bound_s(fault, hosts, in_init):
    """How long the others may take to learn of it."""
    bound = BOUNDS[fault.bound][0 if hosts == 1 else 1]
    # Nobody knows of who has not joined yet: he is waited for.
    return max(bound, INIT_S + 1) if in_init else bound
