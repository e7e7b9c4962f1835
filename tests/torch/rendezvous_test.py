"""The ways of rendezvous: PyTorch's stores, and launchers' environment variables."""

import datetime
import os
import socket

import pytest
import torch
import torch.distributed as dist

from ranks import BACKEND, processes

LIMIT = datetime.timedelta(seconds=30)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def meet(way, rank, size, place):
    if way == "environment":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(place), RANK=str(rank),
                          WORLD_SIZE=str(size))
        dist.init_process_group(BACKEND, timeout=LIMIT)
    elif way == "TCPStore":
        store = dist.TCPStore("127.0.0.1", place, size, rank == 0, LIMIT, use_libuv=False)
        dist.init_process_group(BACKEND, store=dist.PrefixStore("attempt 2", store), rank=rank,
                                world_size=size, timeout=LIMIT)
    else:
        dist.init_process_group(BACKEND, init_method=f"file://{place}", rank=rank,
                                world_size=size, timeout=LIMIT)
    for _ in range(2):
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=dist.new_group())  # groups meet in the same store
        assert tensor.item() == size * (size - 1) / 2
    dist.destroy_process_group()


@pytest.mark.parametrize("way", ["environment", "TCPStore", "file"])
def test_ranks_meet(way, tmp_path):
    place = tmp_path / "store" if way == "file" else free_port()
    made = processes()
    ranks = [made.Process(target=meet, args=(way, rank, 3, place)) for rank in range(3)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0, 0, 0]
