"""Failures on a device: exceptions name the culprit, and nothing hangs."""

import datetime
import os
import signal
import time

import pytest

import fake_gpu  # before torch: fresh processes import it here
import torch
import torch.distributed as dist

from ranks import run_apart

DEVICE = torch.device("cuda:0")


def tensor(count):
    return torch.ones(count).to(DEVICE)


def waited_for(work, seconds=20):
    work.wait(datetime.timedelta(seconds=seconds))


def die_in_a_collective(rank, size):
    dist.all_reduce(tensor(10))
    torch.accelerator.synchronize(0)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["begun"])
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(tensor(10), async_op=True)
    store.set("begun", "")
    with pytest.raises(dist.DistBackendError, match="all_reduce number 1.* rank 1"):
        waited_for(work)
    assert work.is_completed() and not work.is_success()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        dist.barrier(device_ids=[0])  # the next call
    # Its kernel has left, and the stream goes on.
    torch.accelerator.synchronize(0)
    work.wait()


def test_a_killed_rank_is_named():
    (first, code), (_, killed) = run_apart(die_in_a_collective, 2, limit_s=30)
    assert killed == -signal.SIGKILL and code == 0
    # The last wait says it again.
    assert "all_reduce number 1 of 10 Float" in first and "rank 1" in first, first


def call_something_else(rank, size):
    dist.all_reduce(tensor(10))
    torch.accelerator.synchronize(0)
    work = dist.all_reduce(tensor(40 if rank == 0 else 41), async_op=True)
    torch.accelerator.synchronize(0)  # the kernels have ended, both in vain
    assert not work.is_success()
    waited_for(work)


def test_different_sizes_are_told_to_both():
    for said, code in run_apart(call_something_else, 2, limit_s=20):
        assert code == 0 and "40" in said and "41" in said, said
        assert "all_reduce number 1" in said, said


def never_come(rank, size):
    dist.all_reduce(tensor(10))
    if rank == 1:
        time.sleep(6)
        return
    dist.all_reduce(tensor(10))
    dist.barrier(device_ids=[0])


@pytest.mark.long
def test_a_rank_that_does_not_come_is_named_at_the_deadline():
    (first, _), _ = run_apart(never_come, 2, limit_s=2)
    assert "timed out" in first and "rank 1" in first and "barrier number 2" in first, first


def abort(rank, size):
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(tensor(10))
    dist.barrier(device_ids=[0])
    if rank == 1:
        store.set("over", "")
        time.sleep(3)
        return
    store.wait(["over"])
    work = dist.all_reduce(tensor(10), async_op=True)
    work.wait()
    begun = time.monotonic()
    dist.distributed_c10d._get_default_group()._get_backend(DEVICE).abort()
    assert time.monotonic() - begun < 3  # a second, and a test's slack
    with pytest.raises(dist.DistBackendError, match="all_reduce number 2 .*aborted"):
        waited_for(work)
    torch.accelerator.synchronize(0)
    assert time.monotonic() - begun < 3


def test_an_abort_ends_what_is_under_way():
    said = run_apart(abort, 2, limit_s=30)
    assert [text for text, _ in said] == ["fine", "fine"], said


def leave_work_behind(rank, size):
    dist.all_reduce(tensor(1000))
    works = [dist.all_reduce(tensor(1000), async_op=True)]
    if rank == 0:
        works.append(dist.all_reduce(tensor(1000), async_op=True))
    globals()["kept"] = works  # nobody ever waits


@pytest.mark.long
def test_processes_end_with_work_under_way():
    for said, code in run_apart(leave_work_behind, 2, limit_s=20, fresh=True):
        assert said == "fine" and code == 0, (said, code)


def leave_the_group(rank, size):
    dist.all_reduce(tensor(10))
    torch.accelerator.synchronize(0)
    work = dist.all_reduce(tensor(10), async_op=True) if rank == 0 else None
    begun = time.monotonic()
    dist.destroy_process_group()
    if rank == 0:
        assert time.monotonic() - begun < 15
        with pytest.raises(dist.DistBackendError, match="all_reduce number 1"):
            waited_for(work)


@pytest.mark.long
def test_a_group_that_ends_with_work_under_way_aborts_it():
    said = run_apart(leave_the_group, 2, limit_s=60)
    assert [text for text, _ in said] == ["fine", "fine"], said
