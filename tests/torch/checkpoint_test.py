"""Distributed checkpoints: four ranks save one; two and three ranks load it and continue."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ranks import group_of, on_ranks
from training import adam, in_one_process, model_and_batch, same_parameters, share, steps

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def sharded_model_and_optimizer(size):
    model, features, targets = model_and_batch()
    mesh = init_device_mesh("cpu", (size,))
    for block in list(model)[:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, adam(model.parameters()), features, targets


@on_ranks(4)
def save(rank, size, folder):
    model, optimizer, features, targets = sharded_model_and_optimizer(size)
    steps(model, share(features, rank, size), share(targets, rank, size), optimizer, count=2)
    weights, moments = get_state_dict(model, optimizer)
    checkpoint.save({"model": weights, "optimizer": moments, "step": 2}, checkpoint_id=folder)


@on_ranks(2)
def load(rank, size, folder):
    model, optimizer, features, targets = sharded_model_and_optimizer(size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    checkpoint.load(state, checkpoint_id=folder)
    assert state["step"] == 2
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    steps(model, share(features, rank, size), share(targets, rank, size), optimizer, count=2)
    original, features, targets = model_and_batch()
    expected, _ = in_one_process(original, features, targets, count=4)
    same_parameters(model, expected, **CLOSE)


def test_what_4_ranks_save_2_and_3_go_on_with():
    with tempfile.TemporaryDirectory() as folder:
        group_of(4).run(save, folder)
        for size in (2, 3):
            group_of(size).run(load, folder)


@on_ranks(2)
def test_saving_beside_the_training(rank, size):
    """async_save collects on a thread of its own, in a group of its own."""
    model, optimizer, features, targets = sharded_model_and_optimizer(size)
    mine, wanted = share(features, rank, size), share(targets, rank, size)
    names = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(names)
    weights, _ = get_state_dict(model, optimizer)
    before = {name: one.full_tensor() for name, one in weights.items()}
    saving = checkpoint.async_save({"model": weights}, checkpoint_id=names[0],
                                   process_group=dist.new_group())
    steps(model, mine, wanted, optimizer)
    saving.result()
    weights, _ = get_state_dict(model, optimizer)
    checkpoint.load({"model": weights}, checkpoint_id=names[0])
    for name, one in weights.items():
        assert torch.equal(one.full_tensor(), before[name]), name
