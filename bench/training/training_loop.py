"""Shared by the training programs here: options, joining the other ranks, the loop, and its output.
A program is a Task. n ranks with --batch B train it like one with --batch nB: each step draws the
same examples, and each rank takes its part of them."""

import abc
import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

import picture
import sharing


@dataclasses.dataclass
class Job:
    """The ranks that train together. group None: all there are."""
    rank: int = 0
    size: int = 1
    group: object = None

    def mean(self, value):
        """Over the ranks, of a tensor."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value, group=self.group)
            value /= self.size
        return value


class Task(abc.ABC):
    """What is learned."""
    source = "examples"  # what they are, in words

    @abc.abstractmethod
    def model(self):
        """A new one; the same wherever the seed is."""

    def units(self, model):
        """The modules that are gathered one at a time where parameters are in shards."""
        return list(model.blocks)

    @abc.abstractmethod
    def loss(self, model, step, part, parts):
        """The mean over one of so many equal parts of the step's examples."""

    def scores(self, model, job):  # pylint: disable=unused-argument
        """{name: number} of the trained model, the same on all ranks, which all call it."""
        return {}


def parser_of(description, **defaults):
    """One with the options of all programs, to which a program adds its own."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="gyre", help="gyre (default), gloo, ...")
    parser.add_argument("--parallel", default="ddp", choices=sharing.CHOICES, help=sharing.HELP)
    parser.add_argument("--replicas", type=int, default=2, metavar="N",
                        help="hsdp: 1/N of the ranks share one model (default: 2)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"],
                        help="type in which zero2, zero3 and hsdp compute (default: float32)")
    parser.add_argument("--batch", type=int, default=8, metavar="B",
                        help="examples of a rank in a pass (default: %(default)s)")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N",
                        help="passes in a step, which sends gradients once (default: 1)")
    parser.add_argument("--steps", type=int, default=200, help="(default: %(default)s)")
    parser.add_argument("--until-loss", type=float, metavar="LOSS",
                        help="end when the mean of ten steps is below it")
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "sgd"],
                        help="AdamW (default), or gradient descent with momentum 0.9")
    parser.add_argument("--rate", type=float, default=1e-3,
                        help="learning rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--bucket-mb", type=float, default=5,
                        help="size of DDP's buckets (default: %(default)s)")
    parser.add_argument("--plain", action="store_true",
                        help="use FSDP2 over Gyre as over other backends, without memory of the "
                        "process group")
    parser.add_argument("--every", type=int, default=10, help="steps between lines (default: 10)")
    parser.add_argument("--json", metavar="FILE", help="losses and times of the steps, and scores")
    parser.add_argument("--plot", metavar="FILE", help="the loss over time (needs matplotlib)")
    parser.add_argument("--local-rank", help=argparse.SUPPRESS)  # of torch.distributed.launch
    parser.set_defaults(**defaults)
    return parser


def drawn(options, step, part, parts, among, count=None):
    """Numbers below `among` that choose the examples of one of a step's parts."""
    draw = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    count = options.batch if count is None else count
    return torch.randint(among, (parts * count,), generator=draw)[part * count:(part + 1) * count]


def dealt(job, count):
    """[(number, whether it counts)]: this rank's share of so many test examples. All ranks have
    equally many, as each pass of a model in shards is one of all ranks."""
    most = -(-count // job.size) * job.size
    return [(number % count, number < count) for number in range(job.rank, most, job.size)]


def total(job, values):
    """Sums over the ranks, of numbers."""
    return (job.mean(torch.tensor(values, dtype=torch.float64)) * job.size).tolist()


def train(task, job, options, say=None):
    """Trains a new model: [(seconds since the start, mean loss of all ranks)] by step, and the
    model. `say` is given a line now and then."""
    torch.manual_seed(options.seed)
    shared = sharing.share_out(task, job, options)
    parts, curve, began = job.size * options.accumulate, [], time.perf_counter()
    for step in range(options.steps):
        shared.optimizer.zero_grad()
        loss = torch.zeros(())
        for number in range(options.accumulate):
            last = number == options.accumulate - 1
            with contextlib.nullcontext() if last else shared.unsynchronised():
                part = task.loss(shared.model, step, job.rank * options.accumulate + number, parts)
                (part / options.accumulate).backward()
            loss += part.detach() / options.accumulate
        shared.optimizer.step()
        mean = job.mean(loss).item() if shared.together else loss.item()
        curve.append((time.perf_counter() - began, mean))
        if not math.isfinite(mean):
            raise FloatingPointError(f"the loss is {mean} at step {step + 1}")
        if say and (step + 1) % options.every == 0:
            say(f"step {step + 1:5}  loss {mean:.4f}  {curve[-1][0]:8.1f} s  "
                f"{1e3 * curve[-1][0] / len(curve):7.1f} ms a step")
        recent = [one for _, one in curve[-10:]]
        if options.until_loss is not None and sum(recent) / len(recent) < options.until_loss:
            break
    return curve, shared.model


def join(options):
    """The job that this process was started in, by whichever launcher; alone by none."""
    job = Job(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    if job.size > 1:
        if options.backend == "gyre":
            import gyre_torch  # noqa: F401  pylint: disable=unused-import  # before PyTorch 2.13
        dist.init_process_group(options.backend, timeout=datetime.timedelta(minutes=5))
    return job


def report(curve, parameters, source, scores, job, options):
    print(f"{parameters / 1e6:.2f} M parameters, {job.size} rank{'s' if job.size > 1 else ''}, "
          f"{source}: {len(curve)} steps in {curve[-1][0]:.1f} s, loss {curve[0][1]:.4f} to "
          f"{curve[-1][1]:.4f}")
    for name, score in scores.items():
        print(f"{name}: {score:.4f}")
    found = {"parameters": parameters, "ranks": job.size, "backend": options.backend,
             "parallel": options.parallel, "source": source, "seconds": [when for when, _ in curve],
             "losses": [loss for _, loss in curve], "scores": scores}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found), encoding="utf-8")
    if options.plot:
        picture.draw("curve", found, options.plot)


def main(task_of, parser):
    """A training program: its options, the ranks, the loop and the report."""
    options = parser.parse_args()
    name = pathlib.Path(sys.argv[0]).name
    if options.batch < 1 or options.accumulate < 1 or options.steps < 1:
        sys.exit(f"{name}: --batch, --accumulate and --steps are at least 1")
    rank = int(os.environ.get("RANK", 0))
    if options.plot and rank == 0:
        picture.find_python()  # or fail at once
    try:
        sharing.check(options, int(os.environ.get("WORLD_SIZE", 1)))
        task = task_of(options)
        job = join(options)
        curve, model = train(task, job, options,
                             (lambda line: print(line, flush=True)) if rank == 0 else None)
    except (ValueError, FloatingPointError) as error:
        sys.exit(f"{name}: {error}")
    parameters = sum(one.numel() for one in model.parameters())
    model.eval()
    with torch.no_grad():
        scores = task.scores(model, job)
    if rank == 0:
        report(curve, parameters, task.source, scores, job, options)
    if job.size > 1:
        dist.destroy_process_group()
