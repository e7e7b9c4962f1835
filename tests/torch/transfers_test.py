"""Sends and receives of torch.distributed: orders, tags, any source, without and with batches."""

import torch
import torch.distributed as dist

from ranks import on_ranks


@on_ranks(2)
def test_send_and_receive(rank, size):
    for dtype in (torch.float32, torch.bool, torch.int16, torch.bfloat16, torch.complex64):
        for count in (0, 1, 1000, 300_000):
            tensor = (torch.arange(count) % 2).to(dtype)
            if rank == 0:
                dist.send(tensor, 1)
            else:
                found = torch.zeros(count, dtype=dtype)
                assert dist.recv(found, 0) == 0
                assert torch.equal(found, tensor)


@on_ranks(2)
def test_layouts_that_are_not_contiguous(rank, size):
    if rank == 0:
        dist.send(torch.arange(12.0).view(3, 4).t(), 1)
    else:
        base = torch.zeros(8, 3)
        dist.recv(base[::2], 0)
        assert torch.equal(base[::2], torch.arange(12.0).view(3, 4).t())
        assert (base[1::2] == 0).all()


@on_ranks(3)
def test_any_source(rank, size):
    if rank != 2:
        dist.send(torch.full((5,), float(rank)), 2, tag=rank)
        return
    for _ in range(2):
        found = torch.zeros(5)
        source = dist.recv(found, tag=0) if _ == 0 else dist.recv(found, tag=1)
        assert source == _ and (found == source).all()


@on_ranks(2)
def test_tags_in_another_order(rank, size):
    """Large ones: what is sent first has no room to wait in until it is asked for."""
    tensors = [torch.full((400_000,), float(tag)) for tag in range(3)]
    if rank == 0:
        works = [dist.isend(tensor, 1, tag=tag) for tag, tensor in enumerate(tensors)]
    else:
        found = [torch.zeros(400_000) for _ in tensors]
        works = [dist.irecv(found[tag], 0, tag=tag) for tag in (2, 0, 1)]
    for work in works:
        work.wait()
    if rank == 1:
        assert all(torch.equal(one, tensor) for one, tensor in zip(found, tensors))


@on_ranks(3)
def test_everybody_sends_first(rank, size):
    """No batch, and a collective in between: nothing waits for what it does not need."""
    outputs = [torch.full((200_000,), 10.0 * rank + peer) for peer in range(size)]
    works = [dist.isend(outputs[peer], peer) for peer in range(size) if peer != rank]
    dist.barrier()
    inputs = [torch.zeros(200_000) for _ in range(size)]
    works += [dist.irecv(inputs[peer], peer) for peer in range(size) if peer != rank]
    for work in works:
        work.wait()
    assert all((inputs[peer] == 10 * peer + rank).all() for peer in range(size) if peer != rank)


@on_ranks(3)
def test_batches(rank, size):
    outputs = [torch.full((1000 + peer,), 10.0 * rank + peer) for peer in range(size)]
    inputs = [torch.zeros(1000 + rank) for _ in range(size)]
    operations = [dist.P2POp(dist.isend, outputs[peer], peer) for peer in range(size)
                  if peer != rank]
    operations += [dist.P2POp(dist.irecv, inputs[peer], peer) for peer in range(size)
                   if peer != rank]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all((inputs[peer] == 10 * peer + rank).all() for peer in range(size) if peer != rank)


@on_ranks(2)
def test_works_that_nobody_waits_for(rank, size):
    for number in range(20):
        if rank == 0:
            dist.isend(torch.full((50_000,), float(number)), 1)
    if rank == 1:
        for number in range(20):
            found = torch.zeros(50_000)
            dist.recv(found, 0)
            assert (found == number).all()
    dist.barrier()
