"""DistributedDataParallel over Gyre gives what one process with the whole batch gives."""

import copy
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks, run_apart
from training import model_and_data, share, train


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


def average(model, leaves_no_core):
    """By the hook, as on a host whose cores are all busy, or on one that has some to spare."""
    import gyre_torch
    gyre_torch.gradients.average(gyre_torch._C, model, at_the_last=leaves_no_core)


@pytest.mark.parametrize("leaves_no_core", [None, False, True])
@on_ranks(3)
def test_uneven_inputs(rank, size, leaves_no_core):
    """Ranks whose inputs have ended stand in for themselves with nothing until the last is done,
    without a hook and with the averaging one."""
    model, features, targets = model_and_data()
    batches = [list(zip(features.split(1), targets.split(1)))[one::size][:one + 1]
               for one in range(size)]
    alone = copy.deepcopy(model)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
    for number in range(size):
        optimizer.zero_grad()
        for batch in batches:
            if number < len(batch):  # one that has ended gives zeros, and the mean is of all
                (torch.nn.functional.mse_loss(alone(batch[number][0]), batch[number][1]) /
                 size).backward()
        optimizer.step()
    ours = DistributedDataParallel(model, bucket_cap_mb=0.1)
    if leaves_no_core is not None:
        average(ours, leaves_no_core)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.05)
    with ours.join():
        for one, target in batches[rank]:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ours(one), target).backward()
            optimizer.step()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


def lies_in_shared_memory(tensor):
    for line in open("/proc/self/maps", encoding="ascii"):
        first, last = (int(one, 16) for one in line.split()[0].split("-"))
        if first <= tensor.data_ptr() < last:
            return "gyre-memory" in line
    return False


@on_ranks(2)
def test_the_averaging_hook_equals_one_process(rank, size):
    model, features, targets = model_and_data()
    expected = train(copy.deepcopy(model), features, targets)
    group = dist.new_group()
    for views, leaves_no_core, of in ((False, False, None), (True, False, group),
                                      (True, True, group)):
        ours = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=0.1, process_group=of,
                                       gradient_as_bucket_view=views)
        average(ours, leaves_no_core)
        found = train(ours, share(features, rank, size), share(targets, rank, size))
        for one, other in zip(found, expected):
            assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)
        assert lies_in_shared_memory(ours.module[2].weight.grad) == views


def has_gyres_hook(model):
    from gyre_torch import gradients
    return model in gradients._averaged


@on_ranks(2)
def test_a_model_on_the_cpu_gets_the_averaging_hook_by_itself(rank, size):
    model, features, targets = model_and_data()
    expected = train(copy.deepcopy(model), features, targets)
    ours = DistributedDataParallel(copy.deepcopy(model), gradient_as_bucket_view=True)
    if rank == 0:  # it may be asked alone: the ranks meet in the backward pass
        with torch.no_grad():
            ours(features)
    found = train(ours, share(features, rank, size), share(targets, rank, size))
    assert has_gyres_hook(ours) and lies_in_shared_memory(ours.module[2].weight.grad)
    for one, other in zip(found, expected):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)
    with pytest.raises(RuntimeError, match="can only be called once"):
        ours.register_comm_hook(None, nameless(None))


@pytest.mark.parametrize("is_async", [False, True])
@on_ranks(2)
def test_calls_between_buckets_see_them_begun_alone(rank, size, is_async):
    """A layer's own collective comes when one bucket is begun, and another is not."""
    model, features, targets = model_and_data()
    expected = train(copy.deepcopy(model), features, targets)
    sums = []

    def call(*_):
        ones = torch.ones(100)
        work = dist.all_reduce(ones, async_op=is_async)
        if is_async:
            work.wait()
        sums.append(ones.sum().item())

    ours = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=0.005)
    average(ours, True)
    ours.module[2].register_full_backward_hook(call)
    found = train(ours, share(features, rank, size), share(targets, rank, size))
    assert sums == [100 * size] * 5
    for one, other in zip(found, expected):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@on_ranks(2)
def test_no_other_model_gets_it(rank, size):
    called = []

    def zeros(_, bucket):
        called.append(bucket.index())
        done = torch.futures.Future()
        done.set_result(bucket.buffer().zero_())
        return done

    theirs = DistributedDataParallel(torch.nn.Linear(3, 3))
    theirs.register_comm_hook(None, zeros)
    half = DistributedDataParallel(torch.nn.Linear(3, 3).to(torch.float16))
    elsewhere = DistributedDataParallel(torch.nn.Linear(3, 3),
                                        process_group=dist.new_group(backend="gloo"))
    for model in (theirs, half, elsewhere):
        data = torch.ones(2, 3, dtype=next(model.parameters()).dtype)
        model(data * (rank + 1)).sum().backward()
        assert not has_gyres_hook(model)
    assert called and theirs.module.weight.grad.eq(0).all()
    assert half.module.weight.grad.eq(3).all() and elsewhere.module.weight.grad.eq(3).all()


@on_ranks(2)
def test_a_mean_of_the_ranks_that_are_left_is_not_the_hooks(rank, size):
    def pass_over(model, count):
        with model.join(divide_by_initial_world_size=False):
            for _ in range(count):
                model.zero_grad()
                model(torch.ones(1, 1)).sum().backward()

    first = DistributedDataParallel(torch.nn.Linear(1, 1))
    pass_over(first, 1 + rank)  # a rank is left alone: the mean is its own
    assert not has_gyres_hook(first) and (rank == 0 or first.module.weight.grad == 1)
    first(torch.ones(1, 1)).sum().backward()
    later = DistributedDataParallel(torch.nn.Linear(1, 1))
    later(torch.ones(1, 1)).sum().backward()
    with pytest.raises(ValueError, match="divide_by_initial_world_size=False.*GYRE_TORCH_DDP"):
        pass_over(later, 1)
    with later.join():
        later(torch.ones(1, 1)).sum().backward()


def with_the_switch(rank, size):
    ours = DistributedDataParallel(torch.nn.Linear(3, 3))
    ours(torch.ones(2, 3)).sum().backward()
    assert not has_gyres_hook(ours)
    assert ours.module.weight.grad.eq(2).all()


def test_a_switch_leaves_the_hook_out(monkeypatch):
    monkeypatch.setenv("GYRE_TORCH_DDP", "plain")
    assert run_apart(with_the_switch, 2, limit_s=30, fresh=True) == [("fine", 0)] * 2
    monkeypatch.setenv("GYRE_TORCH_DDP", "averge")
    said = subprocess.run([sys.executable, "-c", "import gyre_torch"], capture_output=True,
                          text=True, check=False).stderr
    assert "GYRE_TORCH_DDP is 'averge': it takes 'average' or 'plain'" in said


@on_ranks(2)
def test_the_averaging_hook_is_refused_where_it_cannot_average(rank, size):
    import gyre_torch
    with pytest.raises(TypeError, match="takes a DistributedDataParallel, not a Linear"):
        gyre_torch.average_gradients(torch.nn.Linear(2, 2))
    ours = DistributedDataParallel(torch.nn.Linear(2, 2), process_group=dist.new_group(
        backend="gloo"))
    with pytest.raises(TypeError, match="a backend named gloo is none of Gyre's"):
        gyre_torch.average_gradients(ours)
    ours = DistributedDataParallel(torch.nn.Linear(2, 2))
    gyre_torch.average_gradients(ours)
    with pytest.raises(RuntimeError, match="can only be called once"):
        gyre_torch.average_gradients(ours)


@on_ranks(2)
def test_memory_that_peers_reach_is_used_again(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    places = set()
    for _ in range(3):
        one = backend.allocate_tensor(1000, dtype=torch.bfloat16, device=torch.device("cpu"))
        assert one.shape == (1000,) and one.dtype == torch.bfloat16 and lies_in_shared_memory(one)
        dist.all_reduce(one.fill_(rank))
        assert one.float().eq(size * (size - 1) / 2).all()
        places.add(one.data_ptr())
    assert len(places) == 2  # the last one is still there when the next is made
    assert backend.allocate_tensor(0, dtype=torch.float32, device=torch.device("cpu")).numel() == 0
    for count in (2**62 + 1, 2**61):  # of 4 and 2**63 bytes, as 64 bits have it
        with pytest.raises((ValueError, RuntimeError), match="more than any memory"):
            backend.allocate_tensor(count, dtype=torch.float32, device=torch.device("cpu"))


def nameless(hook):
    """PyTorch knows bf16's hooks by name, and refuses them where there is no GPU."""
    return lambda state, bucket: hook(state, bucket)


@pytest.mark.parametrize("half", ["fp16", "bf16"])
@on_ranks(2)
def test_compressed_gradients(rank, size, half):
    """The mean of what the half type keeps of each rank's gradient, divided before the sum."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[half]
    model, features, targets = model_and_data(torch.float32)
    expected = [0.0] * len(list(model.parameters()))
    for one in range(size):
        alone = copy.deepcopy(model)
        torch.nn.functional.mse_loss(alone(share(features, one, size)),
                                     share(targets, one, size)).backward()
        expected = [total + (parameter.grad.to(dtype) / size).float()
                    for total, parameter in zip(expected, alone.parameters())]
    ours = DistributedDataParallel(model)
    ours.register_comm_hook(None, nameless(getattr(default_hooks, half + "_compress_hook")))
    torch.nn.functional.mse_loss(ours(share(features, rank, size)),
                                 share(targets, rank, size)).backward()
    for parameter, other in zip(ours.parameters(), expected):
        assert torch.equal(parameter.grad, other.to(dtype).float())


@on_ranks(2)
def test_comm_hooks_that_call_others(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import (default_hooks, post_localSGD_hook,
                                                             powerSGD_hook)
    for state, hook in (
            (None, nameless(default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook))),
            (post_localSGD_hook.PostLocalSGDState(None, None, start_localSGD_iter=10),
             post_localSGD_hook.post_localSGD_hook),
            (powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
             powerSGD_hook.powerSGD_hook)):
        model, features, targets = model_and_data(torch.float32)
        ours = DistributedDataParallel(model)
        ours.register_comm_hook(state, hook)
        train(ours, share(features, rank, size), share(targets, rank, size))
        gathered = [torch.zeros_like(model[2].weight) for _ in range(size)]
        dist.all_gather(gathered, model[2].weight.detach())
        assert torch.equal(gathered[0], gathered[1])


@on_ranks(2)
def test_a_static_graph_that_computes_again(rank, size):
    """Activation checkpointing runs forward again inside backward."""
    from torch.utils.checkpoint import checkpoint

    class Again(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, features):
            return checkpoint(self.model[2:], self.model[:2](features), use_reentrant=False)

    model, features, targets = model_and_data()
    expected = train(copy.deepcopy(model), features, targets)
    ours = DistributedDataParallel(Again(model), static_graph=True, bucket_cap_mb=0.1)
    found = train(ours, share(features, rank, size), share(targets, rank, size))
    for one, other in zip(found, expected):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@on_ranks(2)
def test_the_first_pass_over_a_static_graph_of_several_buckets(rank, size):
    """In it DDP says of no bucket that it is the last one."""
    class OfTwoTypes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).double()

        def forward(self, features):
            return self.second(self.first(features).double())

    torch.manual_seed(3)
    model = OfTwoTypes()
    for at_the_last in (False, True):
        ours = DistributedDataParallel(copy.deepcopy(model), static_graph=True)
        average(ours, at_the_last)
        for step in range(3):
            ours.zero_grad()
            ours(torch.full((2, 4), float(rank + step))).sum().backward()
            for one in ours.parameters():
                gathered = [torch.zeros_like(one) for _ in range(size)]
                dist.all_gather(gathered, one.grad)
                assert torch.equal(gathered[0], gathered[1])


@on_ranks(2)
def test_sparse_gradients(rank, size):
    """Of an embedding, beside dense ones."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 1))
    words = torch.tensor([[1, 2], [2, 7]])
    expected = copy.deepcopy(model)
    (expected(words).sum() / size).backward()
    for at_the_last in (False, True):
        ours = DistributedDataParallel(copy.deepcopy(model))
        average(ours, at_the_last)
        for _ in range(2):
            ours.zero_grad()
            ours(words[rank:rank + 1]).sum().backward()
            for one, other in zip(ours.parameters(), expected.parameters()):
                assert torch.allclose(one.grad.to_dense(), other.grad.to_dense())


@on_ranks(2)
def test_buffers_follow_rank_0(rank, size):
    torch.manual_seed(rank)
    ours = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 6),
                                                       torch.nn.BatchNorm1d(6)))
    for _ in range(3):
        ours(torch.randn(8, 6) + rank).sum().backward()
    ours.eval()
    ours.train()(torch.randn(8, 6))  # forward sends the buffers, then changes them
    counted = torch.tensor([float(ours.module[1].num_batches_tracked)])
    weight = [torch.zeros(6, 6) for _ in range(size)]
    dist.all_gather(weight, ours.module[0].weight.detach())
    assert torch.equal(weight[0], weight[1]) and counted == 4


def train_from_workers(rank, size):
    """Workers are forked from a rank whose group is alive, and end before it."""
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # with all that Python does then; PyTorch adds 10 s to it after a backward
    assert os.waitpid(pid, 0)[1] == 0
    model, features, targets = model_and_data()
    data = TensorDataset(features, targets)
    sampler = DistributedSampler(data, size, rank, shuffle=False)
    ours = DistributedDataParallel(copy.deepcopy(model))
    expected = copy.deepcopy(model)
    for one, optimizer in ((ours, torch.optim.SGD(ours.parameters(), lr=0.05)),
                           (expected, torch.optim.SGD(expected.parameters(), lr=0.05))):
        batches = (DataLoader(data, batch_size=3, sampler=sampler, num_workers=2,
                              multiprocessing_context="fork") if one is ours else
                   [(features[first:first + 6], targets[first:first + 6])
                    for first in range(0, len(features), 6)])
        for _ in range(2):
            for some, wanted in batches:
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(one(some), wanted).backward()
                optimizer.step()
    for one, other in zip(ours.parameters(), expected.parameters()):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)
    dist.barrier()


@pytest.mark.long
def test_data_from_forked_workers():
    for said, code in run_apart(train_from_workers, 2, limit_s=30, fresh=True):
        assert said == "fine" and code == 0, said
