"""The table of phases: where in a job's life a fault strikes."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Phase:
    name: str
    kind: str      # init | call | split | rest | destroy
    weight: int = 2


CALLS = ["all-reduce", "reduce", "broadcast", "reduce-scatter", "all-gather", "all-to-all",
         "gather", "scatter", "all-to-all-v", "all-gather-v", "reduce-scatter-v", "barrier",
         "ring", "chain", "pairs", "anyone", "grouped"]
# Calls that ranks of a communicator can make without the others.
MESSAGES = ["ring", "chain", "pairs", "anyone"]

PHASES = [
    Phase("init", "init", weight=6),
    *[Phase(name, "call", weight=6 if name == "all-reduce" else 2) for name in CALLS],
    Phase("split", "split", weight=6),
    Phase("between calls", "rest", weight=4),
    Phase("destroy", "destroy", weight=4),
]


GROUPS = ["ring", "grouped"]  # calls that are made within a group by all ranks


def phases_of(within):
    """Where a fault can strike."""
    if within == "groups":
        return [phase for phase in PHASES if phase.name in GROUPS]
    kinds = {"any": None, "calls": ("call",), "rests": ("rest",)}[within]
    return [phase for phase in PHASES if kinds is None or phase.kind in kinds]
