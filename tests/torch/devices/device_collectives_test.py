"""Collectives and transfers of tensors on a device give the same results as those of CPU tensors.
"""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from ranks import on_ranks

DEVICE = torch.device("cuda:0")


def everywhere(rank, *shape, dtype=torch.float32):
    """Values that no two ranks share: small whole numbers, so that sums are exact."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + rank * 3) % 11 + 1).reshape(shape).to(dtype)


def all_reduce(rank, size, place, is_async):
    yield from (((tensor := place(everywhere(rank, 10, dtype=dtype))), [
        dist.all_reduce(tensor, op, async_op=is_async)])
                for dtype, op in ((torch.float32, dist.ReduceOp.SUM),
                                  (torch.bfloat16, dist.ReduceOp.MAX),
                                  (torch.int64, dist.ReduceOp.PRODUCT),
                                  (torch.float32, dist.ReduceOp.AVG),
                                  (torch.uint8, dist.ReduceOp.BXOR),
                                  (torch.bool, dist.ReduceOp.SUM)))


def all_reduce_of_layouts(rank, size, place, is_async):
    whole = place(everywhere(rank, 6, 4))
    yield whole, [dist.all_reduce(whole.t()[1:3], async_op=is_async)]
    empty = place(torch.zeros(0))
    yield empty, [dist.all_reduce(empty, async_op=is_async)]


def premul_sum(rank, size, place, is_async):
    tensor = place(everywhere(rank, 10))
    yield tensor, [dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5), async_op=is_async)]
    factor = place(torch.full((1,), 2.0))
    yield tensor, [dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor), async_op=is_async)]


def broadcast(rank, size, place, is_async):
    tensor = place(everywhere(rank, 3, 5, dtype=torch.int16))
    yield tensor, [dist.broadcast(tensor, size - 1, async_op=is_async)]
    strided = place(everywhere(rank, 8))
    yield strided, [dist.broadcast(strided[::2], 0, async_op=is_async)]


def reduce(rank, size, place, is_async):
    tensor = place(everywhere(rank, 9))
    work = dist.reduce(tensor, 1, async_op=is_async)
    yield (tensor if rank == 1 else place(torch.zeros(0))), [work]
    pairs = torch.view_as_complex(place(everywhere(rank, 9, 2)))
    work = dist.reduce(pairs, 1, async_op=is_async)
    yield (pairs if rank == 1 else place(torch.zeros(0))), [work]


def all_gather(rank, size, place, is_async):
    outputs = [place(torch.zeros(7)) for _ in range(size)]
    yield outputs, [dist.all_gather(outputs, place(everywhere(rank, 7)), async_op=is_async)]
    uneven = [place(torch.zeros(3 + peer)) for peer in range(size)]
    yield uneven, [dist.all_gather(uneven, place(everywhere(rank, 3 + rank)), async_op=is_async)]


def all_gather_into_tensor(rank, size, place, is_async):
    output = place(torch.zeros(size * 5))
    yield output, [dist.all_gather_into_tensor(output, place(everywhere(rank, 5)),
                                               async_op=is_async)]
    output[rank * 5:rank * 5 + 5] += 1  # in place
    yield output, [dist.all_gather_into_tensor(output, output[rank * 5:rank * 5 + 5],
                                               async_op=is_async)]


def reduce_scatter(rank, size, place, is_async):
    output = place(torch.zeros(6))
    yield output, [dist.reduce_scatter(output, [place(everywhere(rank + peer, 6))
                                                for peer in range(size)], async_op=is_async)]
    uneven = place(torch.zeros(2 + rank))
    yield uneven, [dist.reduce_scatter(uneven, [place(everywhere(rank + peer, 2 + peer))
                                                for peer in range(size)], async_op=is_async)]


def reduce_scatter_tensor(rank, size, place, is_async):
    output = place(torch.zeros(6))
    yield output, [dist.reduce_scatter_tensor(output, place(everywhere(rank, size * 6)),
                                              dist.ReduceOp.AVG, async_op=is_async)]


def all_to_all(rank, size, place, is_async):
    outputs = [place(torch.zeros(1 + (peer + rank) % 3)) for peer in range(size)]
    inputs = [place(everywhere(rank, 1 + (peer + rank) % 3)) for peer in range(size)]
    yield outputs, [dist.all_to_all(outputs, inputs, async_op=is_async)]


def all_to_all_single(rank, size, place, is_async):
    output = place(torch.zeros(size * 4))
    yield output, [dist.all_to_all_single(output, place(everywhere(rank, size * 4)),
                                          async_op=is_async)]
    splits = [(rank + peer) % 3 for peer in range(size)]
    output = place(torch.zeros(sum(splits), 2))
    yield output, [dist.all_to_all_single(output, place(everywhere(rank, sum(splits), 2)), splits,
                                          splits, async_op=is_async)]


def gather(rank, size, place, is_async):
    outputs = [place(torch.zeros(4)) for _ in range(size)] if rank == 1 else None
    yield outputs or [], [dist.gather(place(everywhere(rank, 4)), outputs, 1, async_op=is_async)]


def scatter(rank, size, place, is_async):
    output = place(torch.zeros(4))
    inputs = [place(everywhere(peer, 4)) for peer in range(size)] if rank == 0 else None
    yield output, [dist.scatter(output, inputs, 0, async_op=is_async)]


def coalesced(rank, size, place, is_async):
    tensors = [place(everywhere(rank, count)) for count in (3, 8)]
    with dist._coalescing_manager(device=tensors[0].device, async_ops=is_async) as block:
        for tensor in tensors:
            dist.all_reduce(tensor)
    yield tensors, [block] if is_async else []


def batch(rank, size, place, is_async):
    found = place(torch.zeros(5))
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, place(everywhere(rank, 5)), (rank + 1) % size),
        dist.P2POp(dist.irecv, found, (rank - 1) % size)])
    yield found, works


def send_and_receive(rank, size, place, is_async):
    found = place(torch.zeros(3, 4))
    if rank == 0:
        dist.send(place(everywhere(5, 4, 3)).t(), 1)
    elif rank == 1:
        assert dist.recv(found.t()[:, :3].t(), 0) == 0
    yield found, []


CALLS = [all_reduce, all_reduce_of_layouts, premul_sum, broadcast, reduce, all_gather,
         all_gather_into_tensor, reduce_scatter, reduce_scatter_tensor, all_to_all,
         all_to_all_single, gather, scatter, coalesced, batch, send_and_receive]


def results(call, rank, size, place, is_async):
    found = []
    for outputs, works in call(rank, size, place, is_async):
        for work in works:
            if work is not None:
                work.wait()
        outputs = outputs if isinstance(outputs, list) else [outputs]
        found.append([tensor.cpu().clone() for tensor in outputs])
    return found


def compare(call, rank, size, is_async):
    wanted = results(call, rank, size, lambda tensor: tensor, is_async)
    got = results(call, rank, size, lambda tensor: tensor.to(DEVICE), is_async)
    assert len(wanted) == len(got) > 0
    for some, others in zip(wanted, got):
        assert len(some) == len(others)
        for one, other in zip(some, others):
            assert torch.equal(one, other), (call.__name__, one, other)


@pytest.mark.parametrize("is_async", [False, True])
@on_ranks(2)
def test_two_ranks_get_what_they_get_on_the_cpu(rank, size, is_async):
    for call in CALLS:
        compare(call, rank, size, is_async)


@on_ranks(3)
def test_three_ranks_get_what_they_get_on_the_cpu(rank, size):
    for call in CALLS:
        compare(call, rank, size, True)


@pytest.mark.long
@on_ranks(2)
def test_functional_collectives(rank, size):
    """What DTensor and compiled programs call: their results are waited for when they are used."""
    group = dist.group.WORLD
    mine = torch.full((4,), rank + 1.0).to(DEVICE)
    summed = functional.all_reduce(mine, "sum", group)
    gathered = functional.all_gather_tensor(mine, 0, group)
    scattered = functional.reduce_scatter_tensor(gathered * 1, "avg", 0, group)
    assert (summed + 0).tolist() == [3.0] * 4
    assert (gathered + 0).tolist() == [1.0] * 4 + [2.0] * 4
    assert (scattered + 0).tolist() == [rank + 1.0] * 4
    functional.all_reduce(mine, "sum", group)  # nobody uses it
    assert mine.tolist() == [rank + 1.0] * 4


@on_ranks(2)
def test_tensors_of_two_places_are_refused(rank, size):
    outputs = [torch.zeros(3), torch.zeros(3, device=DEVICE)]
    with pytest.raises(Exception, match="cuda:0 and cpu|cpu and cuda:0"):
        dist.all_gather(outputs, torch.zeros(3, device=DEVICE))


@on_ranks(2)
def test_tags_and_any_source_are_refused_on_a_device(rank, size):
    tensor = torch.zeros(3, device=DEVICE)
    with pytest.raises(ValueError, match="by order alone"):
        dist.send(tensor, 1 - rank, tag=3)
    with pytest.raises(ValueError, match="by order alone"):
        dist.recv(tensor)
