"""The sweep over system calls, on one small job of which one process is traced. A first run counts
its calls. Then, for each kind of call, each of the first few fails, with every plausible error, or
kills the process."""
from draw import Scenario
from faults import BY_NAME, CALL_S, INIT_S, LIVENESS_S
from phases import PHASES
from syscalls import COUNTING, counts_of, injection, injections
from trial import Trial

WORLDS = [(transport, victim) for transport in ("shm", "tcp") for victim in (0, 1)]


def errands():
    sums = [{"verb": "all-reduce", "count": count, "memory": "lent"} for count in (1, 100_000, 1)]
    return [{"verb": "init"}, *sums[:2],
            {"verb": "broadcast", "count": 5000, "queue": "stream", "root": 1},
            {"verb": "ring", "count": 5000},
            {"verb": "split", "children": [1, 1, 2]},
            {"verb": "all-gather", "comm": 1, "count": 3000, "queue": "caller"},
            {"verb": "anyone", "count": 100},
            *sums]


def scenario_of(world, name, tracer):
    transport, victim = world
    phase = next(phase for phase in PHASES if phase.kind == "rest")
    return Scenario(
        seed=0, fault=BY_NAME[name], phase=phase, process_of_rank=[0, 1, 2],
        host_of_process=[0, 0, 0], blocking=True, aftermath="destroy",
        settings={"GYRE_LIVENESS_TIMEOUT": LIVENESS_S, "GYRE_INIT_TIMEOUT": INIT_S,
                  "GYRE_TIMEOUT": CALL_S, "GYRE_TRANSPORT": "self," + transport},
        errands=[{"comm": 0, **errand} for errand in errands()],
        comms={0: [0, 1, 2], 1: [0, 1], 2: [2]}, victims=[victim], at=0,
        closing=len(errands()) - 3, tracer=tracer)


def injected(world, call, what, when):
    name = "call-kills" if what == "signal=KILL" else "call-fails"
    scenario = scenario_of(world, name, injection(call, what, when))
    scenario.replay = f"--call {world[0]}:{world[1]}:{call}:{what}:{when}"
    return scenario


def parsed(text):
    """What --call names."""
    transport, victim, call, what, when = text.split(":")
    return injected((transport, int(victim)), call, what, int(when))


def counted(program, has_namespaces, world):
    """{system call: how often} of the traced process in a job without a fault."""
    trial = Trial(scenario_of(world, "counted", COUNTING), program, has_namespaces).carry_out()
    return counts_of(trial.tracer_log)


def sweep(program, has_namespaces):
    for world in WORLDS:
        for call, what, when in injections(counted(program, has_namespaces, world)):
            yield injected(world, call, what, when)
