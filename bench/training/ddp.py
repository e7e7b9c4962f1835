#!/usr/bin/env python3
"""Time of one step of data-parallel training: one rank, and two by Gyre, by gloo and not at all.

A multi-layer perceptron under DistributedDataParallel, on two processes of this machine with one
thread each (tools/dev torch --shell has the Python for it). All contenders take turns within each
round, in the same processes and in another order each time. So load on the machine affects them
alike, and none always follows one that lets a core rest. Medians are compared.

"two that do not communicate" is the floor: the time that DDP adds to it is exposed communication.
No library can save all of it. "two that only meet" wait for each other at the end of each backward
pass and reduce nothing; so their optimizers use the memory at the same time. Gyre averages by its
own communication hook without being asked; beside it, DDP divides before the sum, as it does where
there is no hook. gloo runs without a hook, and with one that averages in the reduction. The best
setting of each backend counts.
"""

import argparse
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "compare"))
import pair  # noqa: E402  pylint: disable=wrong-import-position
import rounds as provenance_of  # noqa: E402  pylint: disable=wrong-import-position

ALONE, FLOOR, MEET = "1 rank alone", "2 that do not communicate", "2 that only meet"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--width", type=int, default=1024,
                        help="width of a layer (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=7,
                        help="hidden layers (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64,
                        help="examples per rank (default: %(default)s)")
    parser.add_argument("--bucket-mb", type=float, nargs="+", default=[25.0, 5.0], metavar="MB",
                        help="DDP's buckets; each backend is shown with its best (default: 25 5)")
    add_repeats(parser)
    return parser.parse_args()


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def add_repeats(parser):
    parser.add_argument("--launches", type=positive, default=1, metavar="N",
                        help="start the processes N times and take the rounds of all: placement "
                        "of memory makes some faster by 1 or 2 %% (default: %(default)s)")
    parser.add_argument("--rounds", type=positive, default=9,
                        help="rounds of a launch (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=5,
                        help="steps in a round (default: %(default)s)")
    parser.add_argument("--record", action="store_true",
                        help="append the medians to bench/results/training.jsonl")


class Way:
    """One way to train: a model of its own, and how to make a step."""

    def __init__(self, name, options, group=None, bucket_mb=None, synchronises=True, hook=None):
        import torch
        self.name, self.synchronises = name, synchronises
        torch.manual_seed(1)
        layers = [torch.nn.Linear(64, options.width)]
        for _ in range(options.layers - 1):
            layers += [torch.nn.ReLU(), torch.nn.Linear(options.width, options.width)]
        layers += [torch.nn.ReLU(), torch.nn.Linear(options.width, 10)]
        self.model = torch.nn.Sequential(*layers)
        self.parameters = sum(one.numel() for one in self.model.parameters())
        if group is not None:
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.model, process_group=group, bucket_cap_mb=bucket_mb,
                gradient_as_bucket_view=True)
            if hook is not None:
                hook(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.features = torch.randn(options.batch, 64)
        self.labels = torch.randint(0, 10, (options.batch,))

    def step(self):
        import contextlib

        import torch
        with contextlib.nullcontext() if self.synchronises else self.model.no_sync():
            loss = torch.nn.functional.cross_entropy(self.model(self.features), self.labels)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)

    def time(self, steps):
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - began) / steps * 1e3


def average_by_gloo(model):
    import torch.distributed as dist

    def average(group, bucket):
        return dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group=group,
                               async_op=True).get_future().then(lambda done: done.value()[0])
    model.register_comm_hook(model.process_group, average)


def only_meet(model):
    import torch
    import torch.distributed as dist

    def meet(group, bucket):
        if bucket.is_last():
            dist.all_reduce(torch.zeros(1), group=group)
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done
    model.register_comm_hook(model.process_group, meet)


def take_turns(ways, options):
    """On each rank: {way: milliseconds of a step, by round}, the mean over the ranks that train."""
    import torch
    import torch.distributed as dist
    rank = dist.get_rank()
    found = {way.name: [] for way in ways}
    for number in range(options.rounds + 1):  # the first one warms up
        for way in random.Random(number).sample(ways, len(ways)):
            dist.barrier()
            trains = way.name != ALONE or rank == 0
            took = torch.tensor([way.time(options.steps), 1.0] if trains else [0.0, 0.0])
            dist.all_reduce(took)
            if number > 0:
                found[way.name].append(float(took[0] / took[1]))
        if rank == 0:
            print(f"\rround {number} of {options.rounds}", end="", file=sys.stderr, flush=True)
    if rank == 0:
        print(file=sys.stderr)
    return found


def divide_first(model):
    import torch.distributed as dist
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)


def measure(options):
    rank, groups = pair.join()
    others = {"gyre": ("divided first", divide_first), "gloo": ("hook", average_by_gloo)}
    ways = [Way(ALONE, options), Way(FLOOR, options, groups["gyre"], 25.0, synchronises=False),
            Way(MEET, options, groups["gyre"], 25.0, hook=only_meet)]
    for name, group in groups.items():
        for size in options.bucket_mb:
            plain = f"2 by {name}, {size:g} MB"
            other, hook = others[name]
            ways += [Way(plain, options, group, size),
                     Way(f"{plain}, {other}", options, group, size, hook=hook)]
    pair.leave(rank, {"parameters": ways[0].parameters, "times": take_turns(ways, options)})


def launch(options):
    """What the ranks found, in each launch."""
    return [pair.run() for _ in range(options.launches)]


def medians_of(launches):
    """{way: milliseconds of a step}, over the rounds of all of them."""
    return {name: statistics.median(took for one in launches for took in one["times"][name])
            for name in launches[0]["times"]}


def over_floor(medians):
    """{way: per cent}"""
    return {name: 100 * (took / medians[FLOOR] - 1) for name, took in medians.items()}


def show(launches, options):
    medians = medians_of(launches)
    floor, over = medians[FLOOR], over_floor(medians)
    by_launch = [over_floor(medians_of([one])) for one in launches]
    print(f"{launches[0]['parameters'] / 1e6:.2f} M parameters, {options.batch} examples a rank "
          "and step")
    print(f"{'':31} {'ms a step':>10} {'over floor':>11} {'(of launches)':>17} "
          f"{'examples/s against the floor':>29}")
    for name, took in medians.items():
        ranks = 1 if name == ALONE else 2
        least, most = (of(one[name] for one in by_launch) for of in (min, max))
        print(f"{name:31} {took:10.2f} {over[name]:10.1f}% "
              f"{f'{least:.1f} to {most:.1f}%':>17} {ranks / 2 * floor / took:28.3f}x")
    best = {backend: min(took for name, took in medians.items() if f"by {backend}" in name)
            for backend in ("gyre", "gloo")}
    print(f"best of gyre / best of gloo: {best['gyre'] / best['gloo']:.3f}")
    return medians


def record(medians, launches, options, program="bench/training/ddp.py"):
    provenance_of.append_results("training", program, [
        {"way": name, "ranks": 1 if name == ALONE else 2,
         "parameters": launches[0]["parameters"], "batch": options.batch,
         "launches": options.launches, "rounds": options.rounds, "p50_ms": round(took, 3),
         "ratio_to_floor": round(took / medians[FLOOR], 4)} for name, took in medians.items()])


def main():
    options = arguments()
    if pair.is_rank():
        measure(options)
        return
    launches = launch(options)
    medians = show(launches, options)
    if options.record:
        record(medians, launches, options)


if __name__ == "__main__":
    main()
