"""Forked children: they get errors for what is their parent's, may make groups of their own, and
end at once. The parent goes on."""

import os
import signal
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

from ranks import BACKEND, run_apart

CHILD_LIMIT_S = 20
CPU = torch.device("cpu")


def in_child(function, *arguments):
    """Runs it in a forked child, which ends at its end. Returns a function that waits for it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function(*arguments)
            code = 0
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
        finally:
            os._exit(code)

    def wait():
        until = time.monotonic() + CHILD_LIMIT_S
        while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise AssertionError("the child did not end")
            time.sleep(0.01)
        assert ended[1] == 0, f"the child ended with {ended[1]}"
    return wait


def complaint_of(call):
    start = time.monotonic()
    try:
        call()
    except Exception as error:  # pylint: disable=broad-except
        assert time.monotonic() - start < 2
        return str(error)
    return "nothing"


def finish_a_work():
    """By a thread of the backend, which then waits for the next one."""
    columns = torch.ones(4, 4).t()
    dist.all_reduce(columns, async_op=True).get_future().wait()


def use_the_parents(work):
    group, backend = dist.group.WORLD, dist.group.WORLD._get_backend(CPU)
    for call in (lambda: dist.all_reduce(torch.ones(3)),
                 lambda: dist.all_reduce(torch.ones(3), async_op=True),
                 lambda: dist.send(torch.ones(3), 1 - group.rank()), dist.barrier,
                 dist.monitored_barrier, work.wait, work.get_future):
        said = complaint_of(call)
        assert "the parent process" in said, said
    backend.abort()
    assert torch.ones(3).sum() == 3


def fork_with_work_under_way(rank, size):
    finish_a_work()
    message = torch.zeros(3)
    work = dist.irecv(message, 1 - rank)
    wait = in_child(use_the_parents, work)
    wait()
    dist.send(torch.full((3,), float(rank)), 1 - rank)
    work.wait()
    assert (message == 1 - rank).all()
    finish_a_work()


def test_a_child_that_uses_its_parents_group_is_told_so():
    for said, code in run_apart(fork_with_work_under_way, 2, limit_s=30):
        assert said == "fine" and code == 0, said


def leave_the_parents():
    start = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - start < 2, time.monotonic() - start


def fork_and_leave(rank, size):
    message = torch.zeros(3)
    work = dist.irecv(message, 1 - rank)
    wait = in_child(leave_the_parents)
    wait()
    dist.send(torch.full((3,), float(rank)), 1 - rank)
    work.wait()
    assert (message == 1 - rank).all()


def test_a_child_leaves_its_parents_group_at_once_and_the_parent_goes_on():
    for said, code in run_apart(fork_and_leave, 2, limit_s=30):
        assert said == "fine" and code == 0, said


def meet_anew(path, rank, size):
    dist.destroy_process_group()
    dist.init_process_group(BACKEND, store=dist.FileStore(path, size), rank=rank, world_size=size)
    for _ in range(2):
        finish_a_work()
    dist.destroy_process_group()


def fork_ranks_of_a_new_group(rank, size):
    finish_a_work()
    place = [tempfile.mktemp()]
    dist.broadcast_object_list(place, 0)
    wait = in_child(meet_anew, place[0], rank, size)
    finish_a_work()
    wait()
    finish_a_work()


def test_children_may_make_a_group_of_their_own():
    for said, code in run_apart(fork_ranks_of_a_new_group, 2, limit_s=30):
        assert said == "fine" and code == 0, said


def allocate():
    backend = dist.group.WORLD._get_backend(CPU)
    return backend.allocate_tensor(1000, dtype=torch.float32, device=CPU)


def take_memory(kept, taken):
    """Once the parent has taken its memory again."""
    os.read(taken, 1)
    for _ in range(3):
        allocate().fill_(7)
    kept.clear()
    for _ in range(3):
        allocate().fill_(7)


def share_no_memory_that_is_free(rank, size):
    kept = [allocate().fill_(1)]
    free = allocate()
    del free  # kept for the next one
    taken, told = os.pipe()
    wait = in_child(take_memory, kept, taken)
    again = allocate().fill_(2)
    os.write(told, b".")
    wait()
    assert (kept[0] == 1).all() and (again == 2).all()
    dist.all_reduce(kept[0])
    assert (kept[0] == size).all()


def test_a_child_takes_none_of_the_memory_that_its_parent_takes():
    for said, code in run_apart(share_no_memory_that_is_free, 2, limit_s=30):
        assert said == "fine" and code == 0, said
