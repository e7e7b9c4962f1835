"""Training with sharded state, over Gyre, gives the results of one process with the whole batch:
FSDP2, HSDP, FSDP2 with tensor parallelism, and ZeroRedundancyOptimizer."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks
from training import adam, in_one_process, model_and_batch, same_parameters, share, steps

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def shard(model, **options):
    for block in list(model)[:-1]:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def bytes_held(model):
    return sum(one.to_local().numel() * one.element_size() for one in model.parameters())


def fsdp_equals_one_process(rank, size):
    model, features, targets = model_and_batch()
    expected, losses = in_one_process(model, features, targets)
    mesh = init_device_mesh("cpu", (size,))
    everything = sum(one.numel() * 4 for one in model.parameters())
    model = shard(model, mesh=mesh)
    assert bytes_held(model) < 1.2 * everything / size, "a shard is a share"
    found = steps(model, share(features, rank, size), share(targets, rank, size),
                  adam(model.parameters()))
    mean = torch.tensor(found)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    torch.testing.assert_close(mean, torch.tensor(losses), **CLOSE)
    same_parameters(model, expected, **CLOSE)


@on_ranks(2)
def test_fsdp_on_2_ranks(rank, size):
    fsdp_equals_one_process(rank, size)


@on_ranks(3)
def test_fsdp_on_3_ranks(rank, size):
    """Shards of unequal size, some empty."""
    fsdp_equals_one_process(rank, size)


@on_ranks(4)
def test_fsdp_on_4_ranks(rank, size):
    fsdp_equals_one_process(rank, size)


@on_ranks(2)
def test_fsdp_with_buffers_of_the_backend(rank, size):
    model, features, targets = model_and_batch()
    expected, _ = in_one_process(model, features, targets)
    model = shard(model)
    for block in model.modules():
        if isinstance(block, FSDPModule):
            block.set_allocate_memory_from_process_group_for_comm(True)
    steps(model, share(features, rank, size), share(targets, rank, size), adam(model.parameters()))
    same_parameters(model, expected, **CLOSE)


def in_half_precision(model, features, targets, ranks, reduced_in, count=4):
    """FSDP's mixed precision by hand: weights in fp32, each rank's gradient in bf16."""
    model = copy.deepcopy(model)
    optimizer = adam(model.parameters())
    for _ in range(count):
        gradients = []
        for rank in range(ranks):
            half = copy.deepcopy(model).to(torch.bfloat16)
            output = half(share(features, rank, ranks).to(torch.bfloat16))
            torch.nn.functional.mse_loss(output.float(), share(targets, rank, ranks)).backward()
            gradients.append([one.grad.to(reduced_in) for one in half.parameters()])
        for parameter, *parts in zip(model.parameters(), *gradients):
            # Half types are summed in fp32 and rounded once.
            mean = sum(part.float() for part in parts) / ranks
            parameter.grad = mean.to(reduced_in).float()
        optimizer.step()
    return model


@pytest.mark.parametrize("reduced_in", ["float32", "bfloat16"])
@on_ranks(2)
def test_fsdp_in_bf16(rank, size, reduced_in):
    reduced_in = getattr(torch, reduced_in)
    model, features, targets = model_and_batch()
    expected = in_half_precision(model, features, targets, size, reduced_in)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced_in)
    model = shard(model, mesh=init_device_mesh("cpu", (size,)), mp_policy=policy)
    assert all(one.dtype == torch.float32 for one in model.parameters())
    losses = steps(model, share(features, rank, size), share(targets, rank, size),
                   adam(model.parameters()))
    assert losses[-1] < losses[0]
    same_parameters(model, expected, **CLOSE)


@on_ranks(2)
def test_fsdp_accumulates_before_it_reduces(rank, size):
    model, features, targets = model_and_batch()
    expected, losses = in_one_process(model, features, targets)
    model = shard(model, mesh=init_device_mesh("cpu", (size,)), reshard_after_forward=False)
    optimizer = adam(model.parameters())
    mine, wanted = share(features, rank, size), share(targets, rank, size)
    for _ in losses:
        optimizer.zero_grad()
        for number in range(2):
            model.set_requires_gradient_sync(number == 1)
            output = model(share(mine, number, 2))
            (torch.nn.functional.mse_loss(output, share(wanted, number, 2)) / 2).backward()
        optimizer.step()
    same_parameters(model, expected, **CLOSE)


@on_ranks(2)
def test_fsdp_clips_the_norm_of_all(rank, size):
    model, features, targets = model_and_batch()
    alone = copy.deepcopy(model)
    torch.nn.functional.mse_loss(alone(features), targets).backward()
    expected = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.01)
    model = shard(model, mesh=init_device_mesh("cpu", (size,)))
    output = model(share(features, rank, size))
    torch.nn.functional.mse_loss(output, share(targets, rank, size)).backward()
    found = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01).full_tensor()
    torch.testing.assert_close(found, expected, **CLOSE)
    for one, other in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(one.grad.full_tensor(), other.grad, **CLOSE)


@on_ranks(4)
def test_hsdp_on_2_by_2(rank, size):
    model, features, targets = model_and_batch()
    expected, _ = in_one_process(model, features, targets)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    everything = sum(one.numel() * 4 for one in model.parameters())
    model = shard(model, mesh=mesh)
    assert bytes_held(model) > everything / 3, "a shard is half of it, in both replicas"
    steps(model, share(features, rank, size), share(targets, rank, size), adam(model.parameters()))
    same_parameters(model, expected, **CLOSE)


@on_ranks(4)
def test_fsdp_of_tensor_parallel_blocks(rank, size):
    model, features, targets = model_and_batch()
    expected, _ = in_one_process(model, features, targets)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for block in list(model)[:-1]:
        parallelize_module(block, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    # All of a model that is in both is: else its gradients would lie on different meshes.
    parallelize_module(model, mesh["tensor"],
                       {"3": ColwiseParallel(output_layouts=Replicate())})
    model = shard(model, mesh=mesh["data"])
    index = mesh.get_local_rank("data")
    steps(model, share(features, index, 2), share(targets, index, 2), adam(model.parameters()))
    same_parameters(model, expected, **CLOSE)


@on_ranks(3)
def test_zero_redundancy_optimizer(rank, size):
    model, features, targets = model_and_batch()
    expected, _ = in_one_process(model, features, targets)
    ours = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(ours.parameters(), torch.optim.AdamW, lr=0.01, eps=0.1)
    steps(ours, share(features, rank, size), share(targets, rank, size), optimizer)
    same_parameters(ours.module, expected, **CLOSE)
    of_here = len(optimizer.optim.state_dict()["state"])
    assert 0 < of_here < len(list(model.parameters())), "each rank has the state of some"
    optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


@on_ranks(2)
def test_zero_redundancy_optimizer_inside_backward(rank, size):
    """Its steps run in the reducer's callbacks, beside the other buckets."""
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    model, features, targets = model_and_batch()
    expected = copy.deepcopy(model)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.05)
    steps(expected, features, targets, optimizer, count=3)
    ours = DistributedDataParallel(model, bucket_cap_mb=0.01, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(ours.parameters(), torch.optim.SGD, lr=0.05,
                                        overlap_with_ddp=True)
    ours.register_comm_hook(None, hook_with_zero_step(allreduce_hook, ours, optimizer))
    # The first two backwards only set it up.
    steps(ours, share(features, rank, size), share(targets, rank, size), optimizer, count=5)
    same_parameters(ours.module, expected, **CLOSE)


@on_ranks(2)
def test_tensors_change_their_shards(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    everything = torch.arange(7 * 5, dtype=torch.float32).view(7, 5)
    rows = DTensor.from_local(share(everything, rank, size), mesh, [Shard(0)],
                              shape=everything.shape, stride=everything.stride())
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.to_local(), everything.chunk(size, 1)[rank])
    assert torch.equal(columns.full_tensor(), everything)
    product = columns @ rows.redistribute(mesh, [Shard(0)]).redistribute(mesh, [Replicate()]).t()
    torch.testing.assert_close(product.full_tensor(), everything @ everything.t())


@on_ranks(3)
def test_the_older_fsdp(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    model, features, targets = model_and_batch()
    expected, _ = in_one_process(model, features, targets)
    ours = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True,
                                    auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}))
    steps(ours, share(features, rank, size), share(targets, rank, size), adam(ours.parameters()))
    with FullyShardedDataParallel.summon_full_params(ours):
        for one, other in zip(ours.parameters(), expected.parameters()):
            torch.testing.assert_close(one.detach(), other.detach(), **CLOSE)
