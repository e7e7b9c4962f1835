"""Failures in training: every surviving rank soon gets an exception that names the culprit and the
operation, without waiting for the deadline; processes end, and nothing stays behind."""

import os
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from ranks import run_apart

LIMIT_S = 60
SOON_S = 30  # half the deadline: whoever waits for that one is too late
FRESH_S = 20  # more, where each rank has to import PyTorch


def model_of(width=200):
    torch.manual_seed(1)
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)])


def as_ddp(model, _):
    return DistributedDataParallel(model, bucket_cap_mb=0.2)


def as_averaged(model, _):
    """With the hook, where ranks keep all cores busy: buckets are reduced at the last one."""
    import gyre_torch
    wrapped = as_ddp(model, _)
    gyre_torch.gradients.average(gyre_torch._C, wrapped, at_the_last=True)
    return wrapped


def as_fsdp(model, size):
    mesh = init_device_mesh("cpu", (size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(wrap, size, steps=4, in_backward=lambda step: None):
    """`in_backward(step)` is called in the middle of each backward."""
    model = model_of()
    now = [0]
    model[1].register_full_backward_hook(lambda *_: in_backward(now[0]))
    wrapped = wrap(model, size)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    for now[0] in range(steps):
        optimizer.zero_grad()
        wrapped(torch.randn(4, 200)).sum().backward()
        optimizer.step()
    return wrapped


def leftovers():
    return {name for name in os.listdir("/dev/shm") if "gyre" in name.lower()}


def run(function, size, fresh=False):
    """What ranks said and how they ended, having looked at what they left."""
    before, begun = leftovers(), time.monotonic()
    said = run_apart(function, size, limit_s=LIMIT_S, fresh=fresh)
    took = time.monotonic() - begun
    assert took < SOON_S + FRESH_S * fresh, f"{took} s: {said}"
    assert leftovers() <= before
    return said


def blames(text, rank, *operations):
    assert text is not None and f"rank {rank}" in text, text
    assert any(operation in text for operation in operations), text
    return True


def die(step):
    if step == 2:
        os.kill(os.getpid(), signal.SIGKILL)


def die_in_ddp(rank, size):
    train(as_ddp, size, in_backward=die if rank == 1 else lambda step: None)


def die_in_averaged(rank, size):
    train(as_averaged, size, in_backward=die if rank == 1 else lambda step: None)


def die_in_fsdp(rank, size):
    train(as_fsdp, size, in_backward=die if rank == 1 else lambda step: None)


@pytest.mark.parametrize("dying, operations", [(die_in_ddp, ["all_reduce"]),
                                               (die_in_averaged, ["all_reduce"]),
                                               (die_in_fsdp, ["all_gather", "reduce_scatter"])])
def test_a_rank_killed_in_backward_is_named(dying, operations):
    """By both others, though the first of them that ends is soon gone, too."""
    said = run(dying, 3)
    assert said[1] == (None, -signal.SIGKILL)
    for rank in (0, 2):
        text, code = said[rank]
        assert code == 0 and blames(text, 1, *operations), text


def fail(step):
    if step == 2:
        raise KeyError("a bug of the user's")


def fail_in_ddp(rank, size):
    train(as_ddp, size, in_backward=fail if rank == 1 else lambda step: None)


def fail_in_averaged(rank, size):
    train(as_averaged, size, in_backward=fail if rank == 1 else lambda step: None)


def fail_in_fsdp(rank, size):
    train(as_fsdp, size, in_backward=fail if rank == 1 else lambda step: None)


@pytest.mark.parametrize("failing, operations", [(fail_in_ddp, ["all_reduce"]),
                                                 (fail_in_averaged, ["all_reduce"]),
                                                 (fail_in_fsdp, ["all_gather", "reduce_scatter"])])
def test_an_exception_in_backward_ends_the_others(failing, operations):
    said = run(failing, 3)
    assert said[1][0].startswith("KeyError") and said[1][1] == 0, said[1]
    for rank in (0, 2):
        text, code = said[rank]
        assert code == 0 and blames(text, 1, *operations), text


def differ_in_ddp(rank, size):
    as_ddp(model_of(500 + rank), size)  # more bytes than a link holds


def have_more_in_ddp(rank, size):
    model = model_of()
    if rank == 1:
        model.append(torch.nn.Linear(1, 1))
    as_ddp(model, size)


def test_ddp_refuses_parameters_that_differ():
    """PyTorch sends rank 0's shapes round: the others say what differs, and rank 0 that they did
    not go on."""
    (first, code), (second, other) = run(differ_in_ddp, 2)
    assert other == 0 and second.startswith("RuntimeError") and "process 0" in second, second
    assert code == 0 and blames(first, 1, "broadcast")


def test_ddp_refuses_other_numbers_of_parameters():
    for text, code in run(have_more_in_ddp, 2):
        assert code == 0 and text.startswith("RuntimeError"), text
        assert "8 params" in text and "10 params" in text and "rank" in text.lower(), text


def differ_in_fsdp(rank, size):
    model = as_fsdp(model_of(200 + 2 * rank), size)
    model(torch.randn(4, 200 + 2 * rank)).sum().backward()


def test_fsdp_with_parameters_that_differ_shows_both_calls():
    mine = [(200 + 2 * rank) ** 2 // 2 + (200 + 2 * rank) // 2 for rank in range(2)]
    for text, code in run(differ_in_fsdp, 2):
        assert code == 0 and "all_gather" in text, text
        assert all(str(count) in text for count in mine), text


def step_once_less_in_ddp(rank, size):
    train(as_ddp, size, steps=4 - rank)
    dist.all_gather([torch.zeros(3) for _ in range(size)], torch.ones(3))


def step_once_less_in_averaged(rank, size):
    train(as_averaged, size, steps=4 - rank)
    dist.all_gather([torch.zeros(3) for _ in range(size)], torch.ones(3))


def step_once_less_in_fsdp(rank, size):
    train(as_fsdp, size, steps=4 - rank)
    dist.all_reduce(torch.ones(3))


@pytest.mark.parametrize("stepping, operations", [
    (step_once_less_in_ddp, ["gyreAllReduce", "gyreAllGather"]),
    (step_once_less_in_averaged, ["gyreAllReduce", "gyreAllGather"]),
    (step_once_less_in_fsdp, ["gyreAllGather", "gyreAllReduce"])])
def test_one_step_less_shows_both_calls(stepping, operations):
    for text, code in run(stepping, 2):
        assert code == 0 and text.startswith("DistBackendError"), text
        assert all(operation in text for operation in operations), text
        assert "rank 0" in text and "rank 1" in text, text


def leave_once_earlier(rank, size):
    model = train(as_ddp, size, steps=4 - rank)
    del model
    dist.destroy_process_group()


def test_a_rank_that_leaves_one_step_early_is_named():
    (text, code), (other, ended) = run(leave_once_earlier, 2)
    assert (other, ended) == ("fine", 0)
    assert code == 0 and blames(text, 1, "all_reduce"), text


def exit_in_the_middle(rank, size):
    """Of a step whose all-reduces are under way, without a farewell to anybody."""
    train(as_ddp, size, in_backward=lambda step: sys.exit(7) if step == 2 and rank == 1 else None)


@pytest.mark.long
def test_exit_in_backward_ends_the_process():
    (text, code), (_, ended) = run(exit_in_the_middle, 2, fresh=True)
    assert ended == 7 and code == 0 and blames(text, 1, "all_reduce"), (text, ended)


def leave_all_kinds_of_work(rank, size):
    model = train(as_fsdp, size)
    tensors = [torch.ones(100_000) for _ in range(6)]
    works = [dist.all_reduce(tensors[0], async_op=True), dist.isend(tensors[1], 1 - rank, tag=1),
             dist.irecv(tensors[2], 1 - rank, tag=2)]
    futures = [work.get_future().then(lambda _: time.sleep(0.1)) for work in works]
    globals()["kept"] = (model, works, futures)  # until the interpreter ends
    if rank == 0:
        works.append(dist.all_reduce(tensors[3], async_op=True))  # nobody else comes


@pytest.mark.long
def test_interpreters_end_with_all_kinds_of_work_under_way():
    for text, code in run(leave_all_kinds_of_work, 2, fresh=True):
        assert text == "fine" and code == 0, (text, code)
