"""DistributedDataParallel over Gyre gives what one process with the whole batch gives."""

import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks


def model_and_data(dtype=torch.float64):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(),
                                torch.nn.Linear(300, 300), torch.nn.ReLU(),
                                torch.nn.Linear(300, 4)).to(dtype)
    return model, torch.randn(12, 20, dtype=dtype), torch.randn(12, 4, dtype=dtype)


def train(model, features, targets, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(features), targets).backward()
        optimizer.step()
    return [one.detach().clone() for one in model.parameters()]


def share(tensor, rank, size):
    return tensor.chunk(size)[rank]


@on_ranks(2)
def test_ddp_equals_one_process(rank, size):
    model, features, targets = model_and_data()
    expected = train(copy.deepcopy(model), features, targets)
    for views in (False, True):
        for bucket_mb in (0.1, 25):
            ours = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=bucket_mb,
                                           gradient_as_bucket_view=views)
            found = train(ours, share(features, rank, size), share(targets, rank, size))
            for one, other in zip(found, expected):
                assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@on_ranks(2)
def test_no_sync_accumulates(rank, size):
    model, features, targets = model_and_data()
    ours = DistributedDataParallel(model)
    features, targets = share(features, rank, size), share(targets, rank, size)
    with ours.no_sync():
        torch.nn.functional.mse_loss(ours(features), targets).backward()
    first = [one.grad.clone() for one in ours.parameters()]
    gathered = [torch.zeros_like(first[0]) for _ in range(size)]
    dist.all_gather(gathered, first[0])
    assert not torch.equal(gathered[0], gathered[1])
    torch.nn.functional.mse_loss(ours(features), targets).backward()
    dist.all_gather(gathered, ours.module[0].weight.grad)
    assert torch.equal(gathered[0], gathered[1])


@on_ranks(2)
def test_unused_parameters(rank, size):
    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.both = torch.nn.Linear(5, 5)
            self.first, self.second = torch.nn.Linear(5, 1), torch.nn.Linear(5, 1)

        def forward(self, features):
            return (self.first if rank == 0 else self.second)(self.both(features))

    torch.manual_seed(5)
    ours = DistributedDataParallel(Branches(), find_unused_parameters=True)
    for _ in range(3):
        ours(torch.randn(4, 5)).sum().backward()
    for one in ours.parameters():
        gathered = [torch.zeros_like(one.grad) for _ in range(size)]
        dist.all_gather(gathered, one.grad)
        assert torch.equal(gathered[0], gathered[1])


@on_ranks(2)
def test_comm_hooks(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    for register in (lambda ddp: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook),
                     lambda ddp: ddp.register_comm_hook(
                         powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
                         powerSGD_hook.powerSGD_hook)):
        model, features, targets = model_and_data(torch.float32)
        ours = DistributedDataParallel(model)
        register(ours)
        train(ours, share(features, rank, size), share(targets, rank, size))
        gathered = [torch.zeros_like(model[2].weight) for _ in range(size)]
        dist.all_gather(gathered, model[2].weight.detach())
        assert torch.equal(gathered[0], gathered[1])
