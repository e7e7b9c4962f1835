"""What the system refuses: threads that finish works, and the callback that tells of an end."""

import contextlib
import gc
import os
import resource
import shutil
import subprocess
import threading
import time

import torch
import torch.distributed as dist

from ranks import run_apart

KIB = 1024


def fill(value):
    """Not contiguous: its result is copied out by a thread of the backend."""
    return torch.full((4, 4), float(value)).t()[:, :3]


@contextlib.contextmanager
def no_more_threads():
    """Memory for small things, and for no stack. Threads take the stacks that others have left.
    Gives a function that lets so many start."""
    stays = []

    def allow(count):
        for _ in range(count):
            thread, go_on = stays.pop()
            go_on.set()
            thread.join()

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 1024 * KIB, before[1]))
    try:
        while len(stays) < 100:
            go_on = threading.Event()
            thread = threading.Thread(target=go_on.wait)
            try:
                thread.start()
            except RuntimeError:
                break
            stays.append((thread, go_on))
        yield allow
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        allow(len(stays))


def lack_a_second_thread(rank, size):
    """Gyre's thread has carried out a work, and the next one needs one that copies its result."""
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    columns = fill(rank + 1)
    with no_more_threads():
        dist.all_reduce(columns, async_op=True).wait()
    assert (columns == size * (size + 1) / 2).all()


def test_works_end_where_no_thread_can_be_started_any_more():
    for said, code in run_apart(lack_a_second_thread, 2, limit_s=30, fresh=True):
        assert said == "fine" and code == 0, (said, code)


def lack_the_first_thread(rank, size):
    columns, said = fill(rank + 1), "nothing"
    with no_more_threads():
        try:
            dist.all_reduce(columns, async_op=True)
        except RuntimeError as error:
            said = str(error)
    assert "no thread could be started to finish works" in said, said
    assert (columns == rank + 1).all()
    dist.all_reduce(columns, async_op=True).wait()
    assert (columns == size * (size + 1) / 2).all()


def test_nothing_begins_where_no_thread_can_finish_it():
    for said, code in run_apart(lack_the_first_thread, 2, limit_s=30, fresh=True):
        assert said == "fine" and code == 0, (said, code)


def lack_gyres_thread(rank, size):
    one = threading.Thread(target=lambda: None)  # it leaves its stack
    one.start()
    one.join()
    tensor, said = torch.ones(3), "nothing"
    with no_more_threads() as allow:
        allow(1)  # for the thread that finishes works
        try:
            dist.all_reduce(tensor, async_op=True)
        except RuntimeError as error:
            said = str(error)
    assert "all_reduce number 0" in said and "no error" not in said and "thread" in said, said
    dist.all_reduce(tensor, async_op=True).wait()
    assert (tensor == size).all()


def test_the_error_of_a_call_that_did_not_begin_has_its_cause():
    for said, code in run_apart(lack_gyres_thread, 2, limit_s=30, fresh=True):
        assert said == "fine" and code == 0, (said, code)


def lack_more_threads(rank, size):
    """The only thread is in a callback of the user's when the next work ends."""
    entered, leave = threading.Event(), threading.Event()

    def stay(_):
        entered.set()
        assert leave.wait(20)

    dist.all_reduce(fill(1), async_op=True).wait()  # one thread is there
    message = torch.zeros(3)
    work = dist.irecv(message, 1 - rank)
    future = work.get_future().then(stay)
    dist.send(torch.ones(3), 1 - rank)
    assert entered.wait(20)
    second = fill(rank + 1)
    with no_more_threads():
        late = dist.all_reduce(second, async_op=True)
        time.sleep(0.5)
        assert not late.is_completed()
        leave.set()
        late.wait()
    future.wait()
    assert (second == size * (size + 1) / 2).all()
    dist.all_reduce(second)


def test_works_wait_for_a_thread_where_no_other_can_be_started():
    for said, code in run_apart(lack_more_threads, 2, limit_s=30, fresh=True):
        assert said == "fine" and code == 0, (said, code)


REFUSING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
int gyreStreamAddCallback(void* stream, void* callback, void* user) {
  if (getenv("REFUSE_CALLBACKS") != NULL) return 2;
  void* gyre = dlopen("libgyre.so.0", RTLD_NOW | RTLD_NOLOAD);
  int (*queue)(void*, void*, void*);
  *(void**)&queue = dlsym(gyre, "gyreStreamAddCallback");
  return queue(stream, callback, user);
}
"""


def lose_the_callback(rank, size):
    """Rank 1 comes later. Until then the memory of rank 0's call is used by nobody else."""
    elements = 300_000
    dist.barrier()
    if rank == 1:
        time.sleep(1)
        dist.all_reduce(torch.ones(elements))
        dist.barrier()
        return
    said, columns = "nothing", torch.ones(elements, 2)[:, 0]
    os.environ["REFUSE_CALLBACKS"] = "1"
    try:
        dist.all_reduce(columns, async_op=True)
    except RuntimeError as error:
        said = str(error)
    del os.environ["REFUSE_CALLBACKS"]
    assert "goes on, and nobody can be told of its end" in said, said
    del columns
    gc.collect()
    mine = [torch.full((elements,), 5.0) for _ in range(20)]
    dist.barrier()
    assert all((one == 5).all() for one in mine), "the call wrote to memory that it had let go"
    start = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - start < 4  # it knows that nothing is under way


def test_memory_stays_until_the_end_of_a_call_whose_callback_is_refused(tmp_path, monkeypatch):
    source, library = tmp_path / "refusing.c", tmp_path / "refusing.so"
    source.write_text(REFUSING)
    compiler = shutil.which("cc") or shutil.which("c++")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    for said, code in run_apart(lose_the_callback, 2, limit_s=30, fresh=True):
        assert said == "fine" and code == 0, (said, code)
