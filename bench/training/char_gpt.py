#!/usr/bin/env python3
"""Trains a small GPT on characters: on one rank, or data-parallel on many, sharded or not.

    char_gpt.py                                    one rank
    torchrun --nproc-per-node 2 char_gpt.py        two (also: gyre run -n 2 python char_gpt.py)

n ranks with --batch B train as one rank with --batch nB does: each step's examples are drawn alike,
and each rank has its part of them. The text is --data, or else the modules of Python's own library
(a few MB of it), which lie wherever this runs.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import sys
import sysconfig
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="gyre", help="gyre (default), gloo, ...")
    parser.add_argument("--parallel", default="ddp", choices=["ddp", "zero1", "fsdp"],
                        help="what ranks share: nothing, optimizer state, all (default: ddp)")
    parser.add_argument("--data", nargs="+", metavar="FILE", help="text to learn")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--context", type=int, default=96, help="characters (default: 96)")
    parser.add_argument("--batch", type=int, default=8, help="examples of a rank (default: 8)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--until-loss", type=float, metavar="LOSS",
                        help="end when the mean of ten steps is below it")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bucket-mb", type=float, default=5, help="of DDP (default: 5)")
    parser.add_argument("--every", type=int, default=10, help="steps between lines (default: 10)")
    parser.add_argument("--json", metavar="FILE", help="losses and times of the steps")
    parser.add_argument("--plot", metavar="FILE", help="the loss over time (needs matplotlib)")
    parser.add_argument("--local-rank", help=argparse.SUPPRESS)  # of torch.distributed.launch
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.take, self.give = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.take(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.give(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class CharGpt(nn.Module):
    def __init__(self, characters, options):
        super().__init__()
        self.characters = nn.Embedding(characters, options.width)
        self.places = nn.Embedding(options.context, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads)
                                    for _ in range(options.layers))
        self.norm, self.head = nn.LayerNorm(options.width), nn.Linear(options.width, characters)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text):
        x = self.characters(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def read_text(paths):
    if paths is None:
        library = pathlib.Path(sysconfig.get_paths()["stdlib"])
        paths = sorted(path for path in library.glob("*.py") if path.is_file())
        if not paths:
            sys.exit(f"char_gpt.py: no text in {library}: give some by --data")
    text = "".join(pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
                   for path in paths)
    known = sorted(set(text))
    number_of = {character: number for number, character in enumerate(known)}
    return torch.tensor([number_of[character] for character in text]), len(known)


def examples(text, step, rank, size, options):
    """This rank's part of the step's examples: characters, and those that follow them."""
    draw = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    starts = torch.randint(len(text) - options.context - 1, (size * options.batch,), generator=draw)
    starts = starts[rank * options.batch:(rank + 1) * options.batch]
    rows = torch.stack([text[start:start + options.context + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def share_out(model, size, options):
    """The model and its optimizer, as the ranks share them."""
    def adamw(parameters):
        return torch.optim.AdamW(parameters, lr=options.rate, weight_decay=0.01)
    if size == 1:
        return model, adamw(model.parameters())
    if options.parallel == "fsdp":
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard
        mesh = DeviceMesh("cpu", torch.arange(size))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh), adamw(model.parameters())
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=options.bucket_mb,
                                                  gradient_as_bucket_view=True)
    if options.parallel == "ddp":
        return wrapped, adamw(wrapped.parameters())
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW,
                                            lr=options.rate, weight_decay=0.01)


def train(model, optimizer, text, rank, size, options):
    """[(seconds since the start, mean loss of all ranks)] by step."""
    curve, began = [], time.perf_counter()
    for step in range(options.steps):
        rows, following = examples(text, step, rank, size, options)
        loss = functional.cross_entropy(model(rows).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        if size > 1:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        curve.append((time.perf_counter() - began, mean.item()))
        recent = [one for _, one in curve[-10:]]
        if rank == 0 and (step + 1) % options.every == 0:
            print(f"step {step + 1:5}  loss {curve[-1][1]:.4f}  {curve[-1][0]:8.1f} s  "
                  f"{1e3 * curve[-1][0] / len(curve):7.1f} ms a step", flush=True)
        if not math.isfinite(curve[-1][1]):
            sys.exit(f"char_gpt.py: the loss is {curve[-1][1]} at step {step + 1}")
        if options.until_loss is not None and sum(recent) / len(recent) < options.until_loss:
            break
    return curve


def report(curve, parameters, size, options):
    print(f"{parameters / 1e6:.2f} M parameters, {size} rank{'s' if size > 1 else ''}: "
          f"{len(curve)} steps in {curve[-1][0]:.1f} s, loss {curve[0][1]:.4f} to "
          f"{curve[-1][1]:.4f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"parameters": parameters, "ranks": size, "backend": options.backend,
             "parallel": options.parallel, "seconds": [when for when, _ in curve],
             "losses": [loss for _, loss in curve]}), encoding="utf-8")
    if options.plot:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
        figure, axes = pyplot.subplots()
        axes.plot(*zip(*curve))
        axes.set(xlabel="seconds", ylabel="loss", title=f"{size} ranks, {options.parallel}")
        figure.savefig(options.plot)


def main():
    options = arguments()
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    if options.plot and rank == 0:
        import matplotlib  # noqa: F401  pylint: disable=unused-import  # or fail at once
    text, characters = read_text(options.data)
    if len(text) < options.context + 2:
        sys.exit(f"char_gpt.py: {len(text)} characters are fewer than a --context of "
                 f"{options.context}")
    if size > 1:
        if options.backend == "gyre":
            import gyre_torch  # noqa: F401  pylint: disable=unused-import  # before PyTorch 2.13
        dist.init_process_group(options.backend, timeout=datetime.timedelta(minutes=5))
    torch.manual_seed(options.seed)
    model = CharGpt(characters, options)
    parameters = sum(one.numel() for one in model.parameters())
    model, optimizer = share_out(model, size, options)
    curve = train(model, optimizer, text, rank, size, options)
    if rank == 0:
        report(curve, parameters, size, options)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
