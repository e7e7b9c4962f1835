"""Two ranks of a benchmark, as processes of this machine with one thread each: the benchmark starts
itself twice, and rank 0 writes the results."""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

FOLDER, RANK = "BENCH_PAIR_FOLDER", "BENCH_PAIR_RANK"


def is_rank():
    return FOLDER in os.environ


def join():
    """In a rank: its number, and the groups {backend: group}."""
    import torch
    import torch.distributed as dist
    import gyre_torch  # noqa: F401  before 2.13, PyTorch does not find it by itself
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # of names that have newer ones
    rank = int(os.environ[RANK])
    dist.init_process_group("gyre", store=dist.FileStore(os.environ[FOLDER] + "/store", 2),
                            rank=rank, world_size=2, timeout=datetime.timedelta(minutes=5))
    return rank, {"gyre": dist.group.WORLD, "gloo": dist.new_group([0, 1], backend="gloo")}


def leave(rank, found):
    """The end of a rank: what rank 0 found is the result."""
    import torch.distributed as dist
    if rank == 0:
        pathlib.Path(os.environ[FOLDER], "found.json").write_text(json.dumps(found),
                                                                  encoding="utf-8")
    dist.destroy_process_group()


def run():
    """In the program that people start: both ranks, and what rank 0 found."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, *sys.argv],
                                  env={**os.environ, FOLDER: folder, RANK: str(rank)})
                 for rank in range(2)]
        while any(rank.poll() is None for rank in ranks):
            if any(rank.returncode for rank in ranks):  # the others would wait for it
                for rank in ranks:
                    rank.kill()
            time.sleep(0.05)
        if any(rank.returncode for rank in ranks):
            sys.exit(f"the ranks ended with {[rank.returncode for rank in ranks]}")
        return json.loads(pathlib.Path(folder, "found.json").read_text(encoding="utf-8"))
