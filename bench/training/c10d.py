#!/usr/bin/env python3
"""PyTorch's collectives by Gyre beside gloo: all-reduce, reduce-scatter, all-gather, all-to-all.

Two processes of this machine with one thread each (tools/dev torch --shell has the Python for it).
Both backends take turns within each round, in the same processes; medians are compared. Sizes are
those of a rank's larger buffer. --device cuda: tensors of one GPU that both processes share, and
gloo, which knows all-reduce alone there; NCCL refuses two ranks on one GPU.
"""

import argparse
import math
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "compare"))
import pair  # noqa: E402  pylint: disable=wrong-import-position
import rounds as provenance_of  # noqa: E402  pylint: disable=wrong-import-position

COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--collectives", nargs="+", default=COLLECTIVES,
                        type=provenance_of.collective_of(COLLECTIVES),
                        help=", ".join(COLLECTIVES))
    provenance_of.add_sizes(parser, "1K", 4)
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu",
                        help="where the tensors are (default: %(default)s)")
    parser.add_argument("--record", action="store_true",
                        help="append the medians to bench/results/c10d.jsonl")
    options = parser.parse_args()
    if options.device == "cuda":
        if options.collectives not in (COLLECTIVES, ["all_reduce"]):
            parser.error("--device cuda measures all_reduce alone: gloo has no other collective "
                         "there to compare with")
        options.collectives = ["all_reduce"]
    return options


def calls_of(size):
    """How many calls make a measurement."""
    return 200 if size <= 64 << 10 else 40 if size <= 1 << 20 else 10 if size <= 16 << 20 else 4


def call_of(name, size, group, device):
    import torch
    import torch.distributed as dist
    whole, part, other = (torch.ones(size // width, device=device) for width in (4, 8, 4))
    return {"all_reduce": lambda: dist.all_reduce(whole, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
            "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group)}[name]


def measure(options):
    """On each rank: {collective: {size: {backend: [microseconds of a call, by round]}}}."""
    rank, groups = pair.join()
    import torch
    finish = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    found = {}
    for name in options.collectives:
        for size in provenance_of.sizes_of(options):
            times = found.setdefault(name, {}).setdefault(size, {one: [] for one in groups})
            for number in range(options.rounds + 1):  # the first one warms up
                for backend, group in groups.items():
                    call = call_of(name, size, group, options.device)
                    call()
                    finish()
                    began = time.perf_counter()
                    for _ in range(calls_of(size)):
                        call()
                    finish()
                    if number > 0:
                        times[backend].append((time.perf_counter() - began) / calls_of(size) * 1e6)
        if rank == 0:
            print(f"\r{name} measured", end="", file=sys.stderr, flush=True)
    if rank == 0:
        print(file=sys.stderr)
    pair.leave(rank, found)


def show(found):
    rows = []
    print(f"{'collective':15} {'bytes':>9} {'gyre us':>10} {'gloo us':>10} {'gloo/gyre':>10}")
    for name, by_size in found.items():
        for size, times in by_size.items():
            gyre, gloo = (statistics.median(times[one]) for one in ("gyre", "gloo"))
            rows.append((name, int(size), gyre, gloo))
            print(f"{name:15} {size:>9} {gyre:10.1f} {gloo:10.1f} {gloo / gyre:9.2f}x")
    ratios = [gloo / gyre for _, _, gyre, gloo in rows]
    print(f"geometric mean {math.exp(statistics.mean(map(math.log, ratios))):.2f}x, "
          f"least {min(ratios):.2f}x")
    return rows


def found_gpu():
    import torch
    return torch.cuda.get_device_name(0)


def record(rows, options):
    provenance_of.append_results("c10d", "bench/training/c10d.py", [
        {"peer": backend, "collective": name, "type": "float", "ranks": 2, "bytes": size,
         **({} if options.device == "cpu" else {"device": found_gpu()}),
         "rounds": options.rounds, "p50_us": round(took, 2), "ratio": round(took / gloo, 4)}
        for name, size, gyre, gloo in rows for backend, took in (("gyre", gyre), ("gloo", gloo))])


def main():
    options = arguments()
    if pair.is_rank():
        measure(options)
        return
    rows = show(pair.run())
    if options.record:
        record(rows, options)


if __name__ == "__main__":
    main()
