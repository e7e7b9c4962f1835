"""Process groups on devices: created late, concurrently, by splits; several devices; and DDP on
one."""

import copy

import pytest
import torch
import torch.distributed as dist

import fake_gpu
import gyre_torch
from ranks import on_ranks, run_apart

DEVICE = torch.device("cuda:0")


def summed(rank, size, device, group=None):
    tensor = torch.full((5,), rank + 1.0).to(device)
    dist.all_reduce(tensor, group=group)
    return tensor.tolist() == [size * (size + 1) / 2] * 5


@on_ranks(2)
def test_several_devices_in_one_group(rank, size):
    for device in ("cuda:0", "cuda:1", "cpu", "cuda:1", "cuda:0"):
        assert summed(rank, size, device)
    # Transfers have communicators there, too.
    for device in ("cuda:1", "cuda:0"):
        mine = torch.full((3,), float(rank)).to(device)
        if rank == 0:
            dist.send(mine, 1)
        else:
            dist.recv(mine, 0)
            assert (mine == 0).all()


@on_ranks(2)
def test_each_rank_has_a_device_of_its_own(rank, size):
    group = dist.new_group([0, 1])
    assert summed(rank, size, f"cuda:{rank}", group)
    dist.destroy_process_group(group)


@on_ranks(2)
def test_completion_hook_hears_of_operations_on_streams(rank, size):
    group = dist.new_group()
    heard = []
    group._register_on_completion_hook(lambda info: heard.append(info.seq))
    for is_async in (False, True):
        dist.all_reduce(torch.ones(4).to(DEVICE), group=group, async_op=is_async)
    dist.all_reduce(torch.ones(4), group=group)
    group._wait_for_pending_works()
    assert sorted(heard) == [1, 2, 3], heard
    dist.destroy_process_group(group)


@on_ranks(3)
def test_groups_of_some_ranks(rank, size):
    some = dist.new_group([0, 2])
    if rank != 1:
        assert summed(rank // 2, 2, DEVICE, some)
    assert summed(rank, size, DEVICE)
    if rank != 1:
        dist.destroy_process_group(some)


def bind_to_a_device(rank, size):
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    # Under the names that the group before had.
    dist.init_process_group("gyre", store=store, rank=rank, world_size=size, device_id=DEVICE)
    backend = dist.distributed_c10d._get_default_group()._get_backend(DEVICE)
    assert backend.supports_splitting and isinstance(backend, gyre_torch._C.Backend)
    dist.barrier()
    # Made at once, so that the first call may be of some ranks.
    mine = torch.full((3,), float(rank)).to(DEVICE)
    if rank == 0:
        dist.send(mine, 2)
    if rank == 2:
        dist.recv(mine, 0)
        assert (mine == 0).all()
    assert summed(rank, size, DEVICE)
    split = dist.split_group(split_ranks=[[0, 1], [2]])
    own = rank if rank < 2 else 0
    assert summed(own, dist.get_world_size(split), DEVICE, split)
    some = dist.new_group([0, 1])  # rank 2 is asked to split as well
    if rank < 2:
        assert summed(rank, 2, DEVICE, some)
    dist.barrier()
    # Kernels of the others may be under way, and whoever ends without this has died to them.
    dist.destroy_process_group()


def test_a_group_that_is_bound_to_a_device():
    said = run_apart(bind_to_a_device, 3, limit_s=30)
    assert [text for text, _ in said] == ["fine"] * 3, said


@on_ranks(2)
def test_memory_that_peers_reach(rank, size):
    backend = dist.distributed_c10d._get_default_group()._get_backend(DEVICE)
    assert backend.supports_tensor_alloc(DEVICE)

    def take():
        return backend.allocate_tensor(1000, dtype=torch.float32, device=DEVICE)

    one = take()
    one.fill_(rank + 1)
    assert one.device == DEVICE and one.shape == (1000,)
    dist.all_reduce(one)
    assert (one == 3).all()
    address = one.data_ptr()
    del one
    with torch.Stream(DEVICE):
        assert take().data_ptr() != address  # it is the other stream's
    assert take().data_ptr() == address
    many = [take() for _ in range(12)]
    gate = fake_gpu.close_gate(0)
    del many  # more than are kept: freed when the stream has come there
    fake_gpu.open_gate(gate)
    assert backend.allocate_tensor(0, dtype=torch.float32, device=DEVICE).numel() == 0


def model_and_data(rank):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    return model, torch.linspace(-1, 1, 30).reshape(5, 6) * (rank + 1)


@pytest.mark.long
@pytest.mark.parametrize("averages", [False, True])
@on_ranks(2)
def test_ddp_has_the_gradients_of_the_cpu(rank, size, averages):
    model, data = model_and_data(rank)
    wanted = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    on_device = torch.nn.parallel.DistributedDataParallel(model.to(DEVICE))
    if averages:
        gyre_torch.average_gradients(on_device)
    for step in range(3):
        for one, batch in ((wanted, data), (on_device, data.to(DEVICE))):
            one.zero_grad()
            one(batch + step).pow(2).sum().backward()
            with torch.no_grad():
                for parameter in one.parameters():
                    parameter -= 0.01 * parameter.grad
    for one, other in zip(wanted.parameters(), on_device.parameters()):
        assert torch.allclose(one.grad, other.grad.cpu(), rtol=1e-6)
        assert torch.allclose(one, other.cpu(), rtol=1e-6)
