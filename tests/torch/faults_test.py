"""Failures: every rank gets an exception that names the culprit, and every process ends."""

import datetime
import functools
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

from ranks import BACKEND, run_apart


def die_in_a_collective(rank, size):
    dist.all_reduce(torch.ones(10))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1_000_000))


def test_a_killed_rank_is_named():
    (first, code), (_, killed) = run_apart(die_in_a_collective, 2, limit_s=30)
    assert killed == -signal.SIGKILL and code == 0
    assert first.startswith("DistBackendError") and "rank 1" in first, first
    assert "all_reduce number 1" in first, first


def die_in_backward(rank, size):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000))
    for step in range(3):
        if rank == 1 and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.randn(4, 1000)).sum().backward()


@pytest.mark.long
def test_a_rank_killed_in_backward_is_named():
    (first, code), _ = run_apart(die_in_backward, 2, limit_s=30)
    assert code == 0 and "rank 1" in first, first


def never_come(rank, size):
    if rank == 1:
        time.sleep(8)
        return
    dist.all_reduce(torch.ones(10))


@pytest.mark.long
def test_a_rank_that_does_not_come_is_named_at_the_deadline():
    (first, _), _ = run_apart(never_come, 2, limit_s=2)
    assert "timed out" in first and "rank 1" in first, first


def test_a_variable_beats_the_groups_timeout_and_the_error_says_what_held(monkeypatch):
    monkeypatch.setenv("GYRE_TIMEOUT", "2")
    start = time.monotonic()
    (first, _), _ = run_apart(never_come, 2, limit_s=30, fresh=True)
    assert "timed out (its timeout is 2000 ms)" in first and "rank 1" in first, first
    assert time.monotonic() - start < 25


def come_late(rank, size):
    if rank == 1:
        time.sleep(3)
    dist.all_reduce(torch.ones(10))


@pytest.mark.long
def test_a_variable_lengthens_the_groups_timeout_too(monkeypatch):
    monkeypatch.setenv("GYRE_TIMEOUT", "30")
    for said, _ in run_apart(come_late, 2, limit_s=1, fresh=True):
        assert said == "fine", said


def come_late_to_a_longer_deadline(rank, size):
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=30))
    come_late(rank, size)


def never_come_to_a_shorter_deadline(rank, size):
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=2))
    never_come(rank, size)


def test_a_groups_timeout_can_be_raised():
    for said, _ in run_apart(come_late_to_a_longer_deadline, 2, limit_s=1):
        assert said == "fine", said


def test_a_groups_timeout_can_be_lowered():
    (first, _), _ = run_apart(never_come_to_a_shorter_deadline, 2, limit_s=30)
    assert "timed out (its timeout is 2000 ms)" in first and "rank 1" in first, first


def call_something_else(rank, size):
    dist.all_reduce(torch.ones(100 if rank == 0 else 101))


@pytest.mark.long
def test_different_sizes_are_told_to_both():
    for said, code in run_apart(call_something_else, 2, limit_s=20):
        assert code == 0 and "100" in said and "101" in said, said


def raise_on_one(rank, size):
    if rank == 1:
        raise KeyError("a bug of the user's")
    dist.all_reduce(torch.ones(10))


@pytest.mark.long
def test_an_exception_on_one_rank_ends_the_other():
    (first, code), (second, other) = run_apart(raise_on_one, 2, limit_s=20)
    assert code == 0 and other == 0 and second.startswith("KeyError"), second
    assert "rank 1" in first, first


def leave_work_behind(rank, size):
    works = [dist.irecv(torch.zeros(1000), 1 - rank)]
    if rank == 0:
        works.append(dist.all_reduce(torch.ones(1000), async_op=True))
    globals()["kept"] = works  # nobody ever waits


def test_processes_end_with_work_under_way():
    for said, code in run_apart(leave_work_behind, 2, limit_s=20, fresh=True):
        assert said == "fine" and code == 0, (said, code)


def miss_a_barrier(rank, size):
    if rank == 2:
        time.sleep(4)
        return
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=1),
                           wait_all_ranks=True)


@pytest.mark.long
def test_monitored_barrier_names_who_is_missing():
    said = run_apart(miss_a_barrier, 3, limit_s=20)
    for text, _ in said[:2]:
        assert "Ranks 2 failed to pass monitoredBarrier in 1000 ms" in text, text


def miss_the_second_groups_barrier(missing, rank, size):
    """One store, in which a group passed a barrier of the same number before."""
    store = dist.PrefixStore("again", dist.group.WORLD.get_group_store())
    for number in range(2):
        dist.destroy_process_group()
        dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size)
        if number == 1 and rank == missing:
            time.sleep(3)
            return
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))


@pytest.mark.parametrize("missing, word", [(0, "from rank 0: it did not answer within 1000 ms"),
                                           (1, "Rank 1 failed to pass monitoredBarrier")])
def test_monitored_barrier_reads_nothing_of_an_earlier_group(missing, word):
    said = run_apart(functools.partial(miss_the_second_groups_barrier, missing), 2, limit_s=20)
    text, _ = said[1 - missing]
    assert word in text, text


def cross_two_threads(rank, size):
    tensor, message = torch.ones(10), torch.full((300_000,), 7.0)
    if rank == 1:
        dist.recv(message.zero_(), 0)
        assert (message == 7).all()
        dist.all_reduce(tensor)
        return
    waiting = threading.Thread(target=lambda: dist.all_reduce(tensor))
    waiting.start()
    time.sleep(0.3)  # it waits for rank 1, which waits for the message
    dist.send(message, 1)
    waiting.join()
    assert (tensor == size).all()


def test_a_send_does_not_wait_for_a_collective_of_another_thread():
    for said, _ in run_apart(cross_two_threads, 2, limit_s=10):
        assert said == "fine", said


def make_a_group_anew(rank, size):
    store = dist.PrefixStore("again", dist.group.WORLD.get_group_store())
    import gyre_torch
    for number in range(3):
        group = gyre_torch.create(store, rank, size, datetime.timedelta(seconds=10))
        tensor = torch.full((3,), float(number))
        group.allreduce([tensor]).wait()
        assert (tensor == number * size).all()
        group.shutdown()


def test_groups_may_be_made_again_in_one_place_of_a_store():
    for said, _ in run_apart(make_a_group_anew, 2):
        assert said == "fine", said


def make_a_group_that_failed(rank, size):
    """The other rank looks for rank 0 when that has failed once, and before it comes again."""
    store = dist.PrefixStore("late", dist.group.WORLD.get_group_store())
    import gyre_torch
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="rank 1 did not join"):
            gyre_torch.create(store, rank, size, datetime.timedelta(seconds=1))
        store.set("failed", "yes")
        time.sleep(1)
    else:
        store.wait(["failed"], datetime.timedelta(seconds=10))
    group = gyre_torch.create(store, rank, size, datetime.timedelta(seconds=10))
    tensor = torch.ones(3)
    group.allreduce([tensor]).wait()
    assert (tensor == size).all()
    group.shutdown()


def test_a_group_whose_ranks_did_not_all_come_may_be_made_again():
    for said, _ in run_apart(make_a_group_that_failed, 2):
        assert said == "fine", said


def use_after_the_end(rank, size):
    group = dist.group.WORLD
    dist.destroy_process_group()
    group.allreduce([torch.ones(1)])


@pytest.mark.long
def test_a_group_that_has_ended_says_so():
    for said, _ in run_apart(use_after_the_end, 2):
        assert "shut down" in said, said


def wrong_arguments(rank, size):
    for call, word in (
            (lambda: dist.all_reduce(torch.ones(3, dtype=torch.int16)), "cannot reduce"),
            (lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BAND), "BAND"),
            (lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2)), "times"),
            (lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3)), "divide"),
            (lambda: dist.group.WORLD.allgather([[torch.zeros(2)] * size], [torch.zeros(3)]),
             "output has 2"),
            (lambda: dist.all_to_all_single(torch.zeros(4, 2).t(), torch.zeros(2, 4)),
             "contiguous")):
        try:
            call()
        except Exception as error:  # pylint: disable=broad-except
            assert word in str(error), error
        else:
            raise AssertionError(f"nothing was wrong where '{word}' was expected")
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # and the group is as good as before
    assert (tensor == size).all()


def test_wrong_arguments_are_refused_and_break_nothing():
    for said, _ in run_apart(wrong_arguments, 2):
        assert said == "fine", said


def begin_thousands(rank, size):
    tensor, works, parts_s = torch.zeros(1), [], []
    dist.all_reduce(tensor)
    if rank == 1:
        time.sleep(4)  # until then none of the other's ends
    for _ in range(10):
        start = time.monotonic()
        works += [dist.all_reduce(tensor, async_op=True) for _ in range(1500)]
        parts_s.append(time.monotonic() - start)
    if rank == 0:
        assert min(parts_s[-3:]) < 4 * min(parts_s[:3]), parts_s
    for work in works:
        work.wait()


@pytest.mark.long
def test_a_begin_costs_the_same_with_thousands_under_way():
    for said, _ in run_apart(begin_thousands, 2, limit_s=60):
        assert said == "fine", said


def hold_callbacks_up(rank, size):
    def threads():
        return len(os.listdir("/proc/self/task"))

    def waits(_):
        assert go_on.wait(30)

    go_on = threading.Event()
    tensors = [torch.ones(1) for _ in range(12)]
    for tensor in tensors[:2]:
        dist.all_reduce(tensor)
    before = threads()
    if rank == 1:
        time.sleep(2)  # the other one's futures have their callbacks by then
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future().then(waits) for work in works if rank == 0]
    for work in works:
        work.wait()
    if rank == 1:
        return
    most, until = 0, time.monotonic() + 20
    while most < before + 12 and time.monotonic() < until:
        most = max(most, threads())
    go_on.set()
    for future in futures:
        future.wait()
    while threads() > before + 3 and time.monotonic() < until:
        time.sleep(0.1)
    assert most >= before + 12 and threads() <= before + 3, (before, most, threads())


@pytest.mark.long
def test_threads_that_callbacks_have_made_leave_again():
    for said, _ in run_apart(hold_callbacks_up, 2, limit_s=40, fresh=True):
        assert said == "fine", said
