"""Ranks that share a GPU learn what one process learns, and graphs replay their collectives."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks
from training import model_and_data, train

DEVICE = torch.device("cuda:0")


def on_gpu():
    model, features, targets = model_and_data()
    return model.to(DEVICE), features.to(DEVICE), targets.to(DEVICE)


def assert_equal_weights(found, expected):
    for one, other in zip(found, expected, strict=True):
        whole = one.full_tensor() if hasattr(one, "full_tensor") else one
        assert torch.allclose(whole, other, rtol=1e-11, atol=1e-11)


@on_ranks(2)
def test_ddp_learns_what_one_process_learns(rank, size):
    model, features, targets = on_gpu()
    expected = train(copy.deepcopy(model), features, targets)
    for bucket_mb in (0.1, 25):
        ours = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=bucket_mb)
        found = train(ours, features.chunk(size)[rank], targets.chunk(size)[rank])
        assert_equal_weights(found, expected)


@on_ranks(2)
def test_fsdp_learns_what_one_process_learns(rank, size):
    from torch.distributed.fsdp import fully_shard
    model, features, targets = on_gpu()
    expected = train(copy.deepcopy(model), features, targets)
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer)
    fully_shard(model)
    found = train(model, features.chunk(size)[rank], targets.chunk(size)[rank])
    assert_equal_weights(found, expected)


@on_ranks(2)
def test_a_collective_waits_for_the_stream_and_the_stream_for_it(rank, size):
    """No call here waits on the host: the order of the streams alone makes the sums right."""
    for step in range(20):
        data = torch.full((1 << 20,), float(step), device=DEVICE)
        for _ in range(8):
            data = data * 2 - step  # keeps the stream busy; step stays step
        data += rank
        work = dist.all_reduce(data, async_op=True)
        other = torch.full_like(data, 3.0)
        work.wait()
        assert bool(((data + other) == size * step + 1 + 3).all())


@on_ranks(2)
def test_a_graph_replays_its_collectives(rank, size):
    data = torch.ones(5000, device=DEVICE)
    dist.all_reduce(data)  # a first call makes the communicator, which no capture may
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        data.mul_(0.5)
        dist.all_reduce(data)
    for step in range(5):
        data.fill_(float(step + rank))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(data, torch.full_like(data, step + 0.5))


@pytest.mark.parametrize("count", [1, 1000, 3_000_001])
@on_ranks(3)
def test_three_ranks_share_the_gpu(rank, size, count):
    data = torch.arange(count, device=DEVICE) % 97 + rank
    dist.all_reduce(data)
    assert torch.equal(data, torch.arange(count, device=DEVICE) % 97 * 3 + 3)
