"""Every collective of torch.distributed: types, counts, operations, layouts, sync and async."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from ranks import DEVICES, on_ranks

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "uint8", "int32", "int64"]
MOVED = FLOATS + INTEGERS + ["bool", "int16", "float8_e4m3fn", "float8_e5m2", "complex64"]
COUNTS = [0, 1, 4, 1003]
ASYNC = [False, True]


def done(work, is_async):
    """Waits for what was asynchronous; what was not has left no work."""
    if is_async:
        assert work.wait() in (True, None)
        assert work.is_completed()
    else:
        assert work is None


def values(count, dtype, rank):
    """Small whole numbers that differ from rank to rank and are exact in every type."""
    numbers = (torch.arange(count) * 7 + rank * 3) % 5 + 1
    if dtype == torch.bool:
        return numbers % 2 == 0
    return numbers.to(torch.float32).to(dtype)


def everybodys(count, dtype, size):
    return [values(count, dtype, rank) for rank in range(size)]


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        found, expected = found.to(torch.float32), expected.to(torch.float32)
    assert torch.equal(found, expected), f"{found} is not {expected}"


def reduced(all_values, operation):
    dtype = all_values[0].dtype
    wide = [one.to(torch.float64 if dtype.is_floating_point else torch.int64) for one in all_values]
    stacked = torch.stack(wide)
    result = {"SUM": lambda: stacked.sum(0), "PRODUCT": lambda: stacked.prod(0),
              "MIN": lambda: stacked.amin(0), "MAX": lambda: stacked.amax(0),
              "AVG": lambda: stacked.sum(0) / len(wide)}[operation]()
    return result.to(torch.bool if dtype == torch.bool else dtype)


@pytest.mark.parametrize("is_async", ASYNC)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + ["bool"])
@on_ranks(2)
def test_all_reduce(rank, size, dtype, count, is_async):
    dtype = getattr(torch, dtype)
    operations = ["SUM", "PRODUCT", "MIN", "MAX"] + (["AVG"] if dtype.is_floating_point else [])
    for operation in operations:
        tensor = values(count, dtype, rank)
        done(dist.all_reduce(tensor, op=getattr(dist.ReduceOp, operation), async_op=is_async),
             is_async)
        expected = reduced(everybodys(count, dtype, size), operation) if count else tensor
        same(tensor, expected)


@on_ranks(2)
def test_bitwise_reductions(rank, size):
    for dtype in (torch.uint8, torch.int32, torch.int64, torch.bool):
        for operation, act in (("BAND", torch.bitwise_and), ("BOR", torch.bitwise_or),
                               ("BXOR", torch.bitwise_xor)):
            tensor = values(33, dtype, rank)
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, operation))
            first, *others = everybodys(33, dtype, size)
            for other in others:
                first = act(first, other)
            same(tensor, first)


@on_ranks(2)
def test_premul_sum(rank, size):
    for dtype in (torch.float32, torch.float64, torch.float16):
        for factor in (0.5, torch.tensor([2.0], dtype=dtype)):
            tensor = values(100, dtype, rank)
            dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
            scale = float(factor)
            expected = sum(one.to(torch.float64) * scale for one in everybodys(100, dtype, size))
            same(tensor, expected.to(dtype))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@on_ranks(2)
def test_complex_sum_and_avg(rank, size, dtype):
    def of(one):
        return torch.complex(torch.arange(6.0) + one, torch.ones(6) * one).to(getattr(torch, dtype))

    for operation in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        expected = sum(of(one) for one in range(size))
        if operation == dist.ReduceOp.AVG:
            expected /= size
        mine = slice(3 * rank, 3 * rank + 3)
        for call in (dist.all_reduce, lambda tensor, op: dist.reduce(tensor, 0, op)):
            tensor = of(rank)
            call(tensor, op=operation)
            if rank == 0 or call is dist.all_reduce:
                same(tensor, expected)
        strided = torch.zeros(12, dtype=tensor.dtype)[::2].copy_(of(rank))
        dist.all_reduce_coalesced([strided], operation)
        same(strided, expected)
        output = torch.zeros(3, dtype=tensor.dtype)
        dist.reduce_scatter(output, list(of(rank).split(3)), operation)
        same(output, expected[mine])
        dist.reduce_scatter_tensor(output.zero_(), of(rank), operation)
        same(output, expected[mine])
    with pytest.raises(ValueError, match="MAX"):
        dist.reduce(of(rank), 0, dist.ReduceOp.MAX)


@pytest.mark.parametrize("is_async", ASYNC)
@on_ranks(2)
def test_layouts_that_are_not_contiguous(rank, size, is_async):
    base = torch.zeros(6, 8)
    tensor = base.t()[::2]
    tensor += rank + 1
    done(dist.all_reduce(tensor, async_op=is_async), is_async)
    assert (tensor == size * (size + 1) / 2).all() and (base.t()[1::2] == 0).all()
    tensor.fill_(rank + 5)
    done(dist.broadcast(tensor, src=1, async_op=is_async), is_async)
    assert (tensor == 6).all() and (base.t()[1::2] == 0).all()
    outputs = [torch.zeros(8, 6).t() for _ in range(size)]
    done(dist.all_gather(outputs, torch.full((6, 8), float(rank)), async_op=is_async), is_async)
    assert all((output == one).all() for one, output in enumerate(outputs))


@pytest.mark.parametrize("is_async", ASYNC)
@pytest.mark.parametrize("dtype", MOVED)
@on_ranks(2)
def test_moves(rank, size, dtype, is_async):
    dtype = getattr(torch, dtype)
    for count in COUNTS:
        mine, all_values = values(count, dtype, rank), everybodys(count, dtype, size)
        whole = torch.cat(all_values)

        tensor = mine.clone()
        done(dist.broadcast(tensor, src=size - 1, async_op=is_async), is_async)
        same(tensor, all_values[size - 1])

        outputs = [torch.zeros(count, dtype=dtype) for _ in range(size)]
        done(dist.all_gather(outputs, mine, async_op=is_async), is_async)
        for output, expected in zip(outputs, all_values):
            same(output, expected)

        output = torch.zeros(count * size, dtype=dtype)
        done(dist.all_gather_into_tensor(output, mine, async_op=is_async), is_async)
        same(output, whole)

        outputs = [torch.zeros(count, dtype=dtype) for _ in range(size)] if rank == 1 else None
        done(dist.gather(mine, outputs, dst=1, async_op=is_async), is_async)
        for output, expected in zip(outputs or [], all_values):
            same(output, expected)

        output = torch.zeros(count, dtype=dtype)
        done(dist.scatter(output, all_values if rank == 0 else None, src=0, async_op=is_async),
             is_async)
        same(output, mine)


@pytest.mark.parametrize("is_async", ASYNC)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@on_ranks(2)
def test_reduce_and_reduce_scatter(rank, size, dtype, is_async):
    dtype = getattr(torch, dtype)
    for count in COUNTS:
        tensor = values(count, dtype, rank)
        done(dist.reduce(tensor, dst=1, async_op=is_async), is_async)
        if rank == 1 and count:
            same(tensor, reduced(everybodys(count, dtype, size), "SUM"))

        whole = [values(count * size, dtype, one) for one in range(size)]
        expected = (reduced(whole, "SUM") if count else whole[0]).narrow(0, rank * count, count)
        output = torch.zeros(count, dtype=dtype)
        done(dist.reduce_scatter_tensor(output, whole[rank], async_op=is_async), is_async)
        same(output, expected)
        output = torch.zeros(count, dtype=dtype)
        done(dist.reduce_scatter(output, list(whole[rank].chunk(size)) if count else
                                 [whole[rank]] * size, async_op=is_async), is_async)
        same(output, expected)


@on_ranks(3)
def test_uneven_lists(rank, size):
    counts = [3, 0, 8]
    outputs = [torch.zeros(count) for count in counts]
    dist.all_gather(outputs, torch.full((counts[rank],), float(rank)))
    assert [output.tolist() for output in outputs] == [[0.0] * 3, [], [2.0] * 8]
    output = torch.zeros(counts[rank])
    dist.reduce_scatter(output, [torch.full((count,), float(rank)) for count in counts])
    assert output.tolist() == [3.0] * counts[rank]


@pytest.mark.parametrize("is_async", ASYNC)
@on_ranks(3)
def test_all_to_all(rank, size, is_async):
    source = torch.arange(size * 4, dtype=torch.float32).view(size * 2, 2) + 100 * rank
    output = torch.zeros_like(source)
    done(dist.all_to_all_single(output, source, async_op=is_async), is_async)
    for one in range(size):
        same(output[2 * one:2 * one + 2],
             torch.arange(4.0).view(2, 2) + 4 * rank + 100 * one)

    # Rank i sends i + j rows to rank j.
    sends = [rank + one for one in range(size)]
    source = torch.cat([torch.full((rows, 3), 10 * rank + one, dtype=torch.int16)
                        for one, rows in enumerate(sends)])
    output = torch.zeros(sum(sends), 3, dtype=torch.int16)
    done(dist.all_to_all_single(output, source, sends, sends, async_op=is_async), is_async)
    expected = torch.cat([torch.full((rank + one, 3), 10 * one + rank, dtype=torch.int16)
                          for one in range(size)])
    same(output, expected)

    outputs = [torch.zeros(rank + one + 1) for one in range(size)]
    inputs = [torch.full((rank + one + 1,), 10.0 * rank + one) for one in range(size)]
    done(dist.all_to_all(outputs, inputs, async_op=is_async), is_async)
    for one, found in enumerate(outputs):
        same(found, torch.full((rank + one + 1,), 10.0 * one + rank))


@on_ranks(2)
def test_in_place_all_gather(rank, size):
    """FSDP gathers from a slice of the output."""
    output = torch.full((size * 5,), -1.0)
    output.narrow(0, rank * 5, 5).fill_(rank)
    dist.all_gather_into_tensor(output, output.narrow(0, rank * 5, 5))
    assert output.tolist() == [0.0] * 5 + [1.0] * 5


@on_ranks(2)
def test_coalesced(rank, size):
    tensors = [torch.full((count,), float(rank + 1)) for count in (1, 100, 3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((tensor == 3).all() for tensor in tensors)
    outputs = [torch.zeros(size * count) for count in (2, 5)]
    with dist._coalescing_manager():
        for output in outputs:
            dist.all_gather_into_tensor(output, torch.full((output.numel() // size,), float(rank)))
    for output in outputs:
        assert output.tolist() == [0.0] * (output.numel() // 2) + [1.0] * (output.numel() // 2)


@on_ranks(2)
def test_functional_collectives(rank, size):
    group = dist.group.WORLD
    total = functional.all_reduce(torch.ones(4) * (rank + 1), "sum", group)
    assert (total + 0 == 3).all()
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group)
    assert (gathered + 0).tolist() == [0.0, 0.0, 1.0, 1.0]
    share = functional.reduce_scatter_tensor(torch.arange(4.0), "avg", 0, group)
    assert (share + 0).tolist() == torch.arange(4.0)[2 * rank:2 * rank + 2].tolist()
    assert (functional.broadcast(torch.full((3,), float(rank)), 1, group) + 0 == 1).all()
    for one in functional.all_reduce_coalesced([torch.ones(2), torch.ones(5)], "sum", group):
        assert (one + 0 == size).all()
    for one in functional.all_gather_into_tensor_coalesced([torch.ones(2), torch.ones(5)], group):
        assert (one + 0 == 1).all() and one.numel() in (4, 10)
    shares = functional.reduce_scatter_tensor_coalesced([torch.ones(2), torch.ones(6)], "sum",
                                                        [0, 0], group)
    assert [(one + 0).tolist() for one in shares] == [[2.0], [2.0] * 3]
    splits = [rank + one for one in range(size)]  # rank i sends i + j elements to rank j
    found = functional.all_to_all_single(torch.full((sum(splits),), float(rank)), splits, splits,
                                         group)
    assert (found + 0).tolist() == [float(one) for one in range(size) for _ in range(rank + one)]
    # What backward sends the other way.
    source = torch.full((2,), float(rank), requires_grad=True)
    (functional.all_gather_tensor_autograd(source, 0, group) * torch.arange(4.0)).sum().backward()
    assert source.grad.tolist() == (torch.arange(4.0)[2 * rank:2 * rank + 2] * size).tolist()


@on_ranks(2)
def test_compiled_functional_collectives(rank, size):
    """torch.compile traces collectives; what it makes of them waits where it has to."""
    import torch.distributed._functional_collectives as functional

    def act(tensor):
        return functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1
    compiled = torch.compile(act, backend="aot_eager", fullgraph=True)
    assert (compiled(torch.full((5,), rank + 1.0)) == 7).all()


@on_ranks(2)
def test_functional_collectives_that_nobody_waits_for(rank, size):
    import torch.distributed._functional_collectives as functional
    for _ in range(10):
        functional.all_reduce(torch.ones(1000), "sum", dist.group.WORLD)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert (tensor == size).all()


@on_ranks(2)
def test_sparse_all_reduce(rank, size):
    tensor = torch.sparse_coo_tensor([[rank, 3]], [[1.0, 2.0], [3.0, 4.0]], (6, 2),
                                     check_invariants=True)
    dist.all_reduce(tensor)
    expected = torch.zeros(6, 2)
    for one in range(size):
        expected[one] += torch.tensor([1.0, 2.0])
        expected[3] += torch.tensor([3.0, 4.0])
    same(tensor.to_dense(), expected)


@on_ranks(3)
def test_objects(rank, size):
    found = [None] * size
    mine = {"rank": rank, "text": "x" * rank * 1000}
    dist.all_gather_object(found, mine)
    assert [one["rank"] for one in found] == list(range(size))
    objects = [("from", rank)]
    dist.broadcast_object_list(objects, src=2)
    assert objects == [("from", 2)]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object(mine, gathered, dst=1)
    assert rank != 1 or [len(one["text"]) for one in gathered] == [0, 1000, 2000]
    share = [None]
    dist.scatter_object_list(share, [{"for": one} for one in range(size)] if rank == 2 else None,
                             src=2)
    assert share == [{"for": rank}]
    if rank == 0:
        dist.send_object_list([mine, 7], dst=2)
    elif rank == 2:
        came = [None, None]
        assert dist.recv_object_list(came, src=0) == 0 and came == [{"rank": 0, "text": ""}, 7]


@on_ranks(2)
def test_futures_and_works(rank, size):
    tensor = torch.full((1000,), float(rank + 1))
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    assert (doubled.wait() == 6).all()
    assert work.is_success() and work.get_future().done()
    assert work.result()[0].data_ptr() == tensor.data_ptr()

    # A callback that waits for further operations.
    def again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]
    tensor = torch.ones(10)
    assert (dist.all_reduce(tensor, async_op=True).get_future().then(again).wait() == 4).all()

    # Works that nobody waits for.
    tensors = [torch.full((5000,), float(rank)) for _ in range(50)]
    for one in tensors:
        dist.all_reduce(one, async_op=True)
    dist.barrier()
    assert all((one == 1).all() for one in tensors)


@on_ranks(2)
def test_sequence_numbers(rank, size):
    group = dist.new_group([0, 1])
    assert group._get_sequence_number_for_group() == 0
    for number in range(1, 4):
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        assert work._get_sequence_number() == number
        work.wait()
    assert group._get_sequence_number_for_group() == 3
    # Sends and receives have no part in it, alone or in batches: ranks do not do as many of them.
    tensor = torch.ones(1)
    for _ in range(2):
        if rank == 0:
            dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1, group)])[0].wait()
        else:
            dist.recv(tensor, 0, group=group)
    assert group._get_sequence_number_for_group() == 3
    dist.destroy_process_group(group)


@on_ranks(2)
def test_a_wait_takes_the_work_out_of_the_registry(rank, size):
    registered = torch._C._distributed_c10d._get_work_registry_size
    before = registered()
    with functional.allow_inflight_collective_as_graph_input_ctx():
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert registered() == before + 1
        work.wait()
        assert registered() == before


@on_ranks(3)
def test_groups_and_splits(rank, size):
    pair = dist.new_group([0, 2])
    if rank != 1:
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=pair)
        assert tensor.item() == 2
        dist.broadcast(tensor, src=2, group=pair)
    dist.barrier()
    if rank != 1:
        dist.destroy_process_group(pair)


@on_ranks(4)
def test_a_group_is_split(rank, size):
    """By the group itself: dist.split_group asks for an accelerator."""
    ranks = [0, 2] if rank % 2 == 0 else [1, 3]
    part = dist.group.WORLD.split_group(ranks, group_name=f"split{rank % 2}")
    assert part.size() == 2 and part.rank() == rank // 2
    tensor = torch.tensor([float(rank)])
    part.allreduce([tensor]).wait()
    assert tensor.item() == sum(ranks)
    part._get_backend(torch.device("cpu")).shutdown()


@pytest.mark.skipif(torch.cuda.is_available() or DEVICES > 0, reason="these are devices here")
@on_ranks(2)
def test_a_number_names_no_device_where_there_are_none(rank, size):
    """As Accelerate calls it, on the CPU too."""
    dist.barrier(device_ids=[rank])
