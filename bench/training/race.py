#!/usr/bin/env python3
"""Time to a fixed loss: one rank, and two by a parameter server, DDP over gloo and Gyre, sharded.

All train the same (seed, examples of a step, so each step's loss), on two processes of this machine
with one thread each (tools/dev torch --shell has the Python for it). The processes run every
contender in turn within each round, so that load on the machine affects them alike; medians are
compared. Exposed communication is a step's time beyond that of two ranks that do not communicate.
"""

import argparse
import gc
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "compare"))
import pair  # noqa: E402  pylint: disable=wrong-import-position
import picture  # noqa: E402  pylint: disable=wrong-import-position
import rounds as provenance_of  # noqa: E402  pylint: disable=wrong-import-position

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
ALONE, FLOOR = "1 rank", "2 that do not communicate"
# What each program is started with, and examples of a step.
PROGRAMS = {
    "char_gpt": (["--layers", "2", "--width", "256", "--heads", "4", "--context", "64"], 8),
    "digits": (["--rate", "1e-3"], 64),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS),
                        help="(default: all)")
    parser.add_argument("--data", nargs="+", metavar="FILE",
                        help="text for char_gpt (default: its own)")
    parser.add_argument("--char-gpt-loss", type=float, metavar="LOSS",
                        help="target for char_gpt's mean of ten steps (default: 2.45 for the "
                        "Bible, 2.8 for another text)")
    parser.add_argument("--digits-loss", type=float, default=0.1, metavar="LOSS",
                        help="the same for digits (default: %(default)s)")
    parser.add_argument("--sharded", nargs="*", default=["zero1", "zero3"],
                        choices=["zero1", "zero2", "zero3"],
                        help="ways in which Gyre's ranks share the model (default: zero1 zero3)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1000,
                        help="a contender gives up after these (default: %(default)s)")
    parser.add_argument("--floor-steps", type=int, default=30,
                        help="steps of the ranks that do not communicate (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="all curves of all rounds")
    parser.add_argument("--record", action="store_true",
                        help="append medians and curves to bench/results/training_race.jsonl")
    parser.add_argument("--recorded", action="store_true",
                        help="measure nothing; use the newest recorded figures")
    parser.add_argument("--plot", nargs="?", const=str(RESULTS / "training_race.svg"),
                        metavar="FILE", help="draw it (default: bench/results/training_race.svg)")
    return parser.parse_args()


def ways_of(options):
    """{name: (--parallel, backend, ranks)}"""
    ways = {ALONE: ("ddp", None, 1), FLOOR: ("apart", "gyre", 2),
            "2, server, gloo": ("server", "gloo", 2), "2, DDP, gloo": ("ddp", "gloo", 2),
            "2, DDP, Gyre": ("ddp", "gyre", 2)}
    return ways | {f"2, {kind}, Gyre": (kind, "gyre", 2) for kind in options.sharded}


def task_of(program, options):
    """A program's task, and its options to be changed by way."""
    if program == "char_gpt":
        import char_gpt as module
        task, words = module.Characters, ["--data", *options.data] if options.data else []
        easier = module.source(options.data) == "bible-kjv-text"
        loss = options.char_gpt_loss or (2.45 if easier else 2.8)
    else:
        import digits as module
        task, words, loss = module.Digits, [], options.digits_loss
    words += ["--until-loss", str(loss)]
    return task(module.options_parser().parse_args([*PROGRAMS[program][0], *words]))


def one_run(task, program, way, rank, groups, steps):
    """One training by one way: its curve."""
    import torch.distributed as dist

    import training_loop
    parallel, backend, ranks = way
    task.options.parallel, task.options.steps = parallel, steps
    task.options.batch = PROGRAMS[program][1] // ranks
    job = training_loop.Job()
    if ranks > 1:  # the default group is Gyre's
        job = training_loop.Job(rank, ranks, groups["gloo"] if backend == "gloo" else None)
    gc.collect()
    # gloo's barrier sleeps: a rank that is alone is to be alone on the machine.
    dist.barrier(group=groups["gloo"])
    curve = training_loop.train(task, job, task.options)[0] if rank < ranks else []
    dist.barrier(group=groups["gloo"])
    return curve


def measure(options):
    """On each rank: {program: {way: [curve by round]}}, and {program: what it was}."""
    rank, groups = pair.join()
    ways, found, facts = ways_of(options), {}, {}
    for program in options.programs:
        task = task_of(program, options)
        facts[program] = {"parameters": sum(one.numel() for one in task.model().parameters()),
                          "batch": PROGRAMS[program][1], "loss": task.options.until_loss,
                          "source": task.source}
        curves = found[program] = {name: [] for name in ways}
        for way in ways.values():
            one_run(task, program, way, rank, groups, steps=3)
        for number in range(options.rounds):
            names = list(ways)
            for name in names[number % len(names):] + names[:number % len(names)]:
                steps = options.floor_steps if name == FLOOR else options.steps
                curves[name].append(one_run(task, program, ways[name], rank, groups, steps))
                if rank == 0:
                    print(f"{program}, round {number + 1} of {options.rounds}: {name:26} "
                          f"{len(curves[name][-1]):4} steps, {curves[name][-1][-1][0]:7.2f} s",
                          file=sys.stderr, flush=True)
    pair.leave(rank, {"curves": found, "facts": facts})


def step_ms(curve):
    """The median; the first step, which sets up, is left out."""
    ends = [when for when, _ in curve]
    return 1e3 * statistics.median(after - before for before, after in zip(ends, ends[1:]))


def smooth(curve):
    """Means of ten steps: what is held against the loss to reach."""
    losses = [loss for _, loss in curve]
    return [statistics.fmean(losses[max(0, end - 10):end]) for end in range(1, len(losses) + 1)]


def compare(program, curves, facts, options):
    """A row for each way. Ends the program where one did not get there."""
    floor = statistics.median(map(step_ms, curves[FLOOR]))
    alone = statistics.median(curve[-1][0] for curve in curves[ALONE])
    expected = [loss for _, loss in curves[ALONE][0]]
    rows = []
    for name, runs in curves.items():
        if name == FLOOR:
            continue
        if any(smooth(curve)[-1] >= facts["loss"] for curve in runs):
            sys.exit(f"race.py: {program}, {name}: no loss of {facts['loss']} in "
                     f"{options.steps} steps")
        ordered = sorted(runs, key=lambda curve: curve[-1][0])
        middle = ordered[len(ordered) // 2]
        seconds = statistics.median(curve[-1][0] for curve in runs)
        took = statistics.median(map(step_ms, runs))
        rows.append({
            "way": name, "ranks": 1 if name == ALONE else 2, "steps": len(middle),
            "seconds_to_loss": round(seconds, 3), "speedup": round(alone / seconds, 3),
            "p50_ms": round(took, 3),
            "exposed_ms": 0 if name == ALONE else round(took - floor, 3),
            "curve_distance": max(abs(one[1] - other) for curve in runs
                                  for one, other in zip(curve, expected)),
            "times": [when for when, _ in middle], "losses": smooth(middle)})
    return {**facts, "floor_ms": round(floor, 3), "rows": rows}


def show(program, race):
    print(f"{program}, {race['source']}: {race['parameters'] / 1e6:.2f} M parameters, "
          f"{race['batch']} examples a step, to a loss of {race['loss']}; two that do not "
          f"communicate: {race['floor_ms']:.2f} ms a step")
    print(f"{'':20} {'seconds':>9} {'speed-up':>9} {'steps':>6} {'ms a step':>10} "
          f"{'exposed ms':>11} {'loss off by':>12}")
    for row in race["rows"]:
        print(f"{row['way']:20} {row['seconds_to_loss']:9.2f} {row['speedup']:8.2f}x "
              f"{row['steps']:6} {row['p50_ms']:10.2f} {row['exposed_ms']:11.2f} "
              f"{row['curve_distance']:12.1e}")


def record(races, options):
    rows = []
    for program, race in races.items():
        of_all = {key: value for key, value in race.items() if key != "rows"}
        for row in race["rows"]:
            curve = {name: [round(value, 4) for value in row[name]] for name in ("times", "losses")}
            rows.append({"program": program, **of_all, "rounds": options.rounds, **row, **curve})
    provenance_of.append_results("training_race", "bench/training/race.py", rows)


def recorded(options):
    """The races of the newest recorded run."""
    races = {}
    for row in provenance_of.newest_results("training_race"):
        if row["program"] in options.programs:
            races.setdefault(row["program"], {**row, "rows": []})["rows"].append(row)
    return races


def main():
    options = arguments()
    if options.recorded:
        races = recorded(options)
        for program, race in races.items():
            show(program, race)
        picture.draw("race", races, options.plot or str(RESULTS / "training_race.svg"))
        return
    if pair.is_rank():
        measure(options)
        return
    if options.rounds < 1 or options.floor_steps < 2:
        sys.exit("race.py: --rounds is at least 1, --floor-steps 2")
    if options.plot:
        picture.find_python()  # or fail at once
    found = pair.run()
    races = {program: compare(program, curves, found["facts"][program], options)
             for program, curves in found["curves"].items()}
    for program, race in races.items():
        show(program, race)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({**found, "races": races}),
                                              encoding="utf-8")
    if options.plot:
        picture.draw("race", races, options.plot)
    if options.record:
        record(races, options)


if __name__ == "__main__":
    main()
