"""Ranks: processes of one group that all run a test's function at the same time.

A test module has `@on_ranks(2)` functions: pytest calls such a function once, and it runs on every
rank, in processes that live from test to test. An exception of a rank fails the test and names the
rank.
"""

import atexit
import datetime
import functools
import importlib
import multiprocessing
import os
import tempfile
import traceback

BACKEND = os.environ.get("GYRE_TEST_BACKEND", "gyre")  # gloo shows what a test asks of others
LIMIT_S = 60
DEVICES = int(os.environ.get("FAKE_DEVICES", "0"))  # of the fake driver, in each rank
# To import PyTorch takes seconds: one process does, and ranks are forked from it.
IMPORTED = ["pytest", *(["fake_gpu"] if DEVICES else []), "torch", "torch.distributed",
            "torch.distributed.tensor"]


def processes(fresh=False):
    """How to make processes. Fresh ones import PyTorch, and end as Python does by itself; others
    end without its farewell."""
    if fresh:
        return multiprocessing.get_context("spawn")
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(IMPORTED)
    return forking


def _begin(path):
    """What a rank's process does first."""
    import sys
    sys.path[:0] = path
    if DEVICES:
        import fake_gpu
        fake_gpu.start(DEVICES)
    if BACKEND == "gyre":
        import torch
        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):  # finds no entry point
            import gyre_torch  # noqa: F401


def _serve(pipe, rank, size, store_path, path):
    _begin(path)
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    store = dist.FileStore(store_path, size)
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=LIMIT_S / 2))
    pipe.send(None)
    while (asked := pipe.recv()) is not None:
        module, name, arguments = asked
        try:
            importlib.import_module(module).__dict__[name].on_rank(rank, size, *arguments)
            pipe.send(None)
        except BaseException:  # pylint: disable=broad-except
            pipe.send(traceback.format_exc())
    dist.destroy_process_group()
    pipe.send(None)


class Ranks:
    """`size` processes in one group."""

    def __init__(self, size):
        import sys
        self.size = size
        self.folder = tempfile.TemporaryDirectory()
        made = processes()
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = made.Pipe()
            process = made.Process(target=_serve, daemon=True,
                                   args=(theirs, rank, size, self.folder.name + "/store",
                                         sys.path))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.collect("joining")

    def run(self, function, *arguments):
        for pipe in self.pipes:
            pipe.send((function.__module__, function.__name__, arguments))
        self.collect(function.__name__)

    def collect(self, doing):
        failures = []
        for rank, pipe in enumerate(self.pipes):
            try:
                failure = pipe.recv() if pipe.poll(LIMIT_S) else f"no answer in {LIMIT_S} s"
            except EOFError:
                failure = "the process has ended"
            if failure is not None:
                failures.append(f"rank {rank}, {doing}: {failure}")
        if failures:
            self.end()
            raise AssertionError("\n".join(failures))

    def end(self):
        _groups.pop(self.size, None)
        for process in self.processes:
            process.kill()
            process.join()

    def leave(self):
        for pipe in self.pipes:
            pipe.send(None)
        self.collect("leaving")
        for process in self.processes:
            process.join(LIMIT_S)
            assert process.exitcode == 0, f"a rank ended with {process.exitcode}"


_groups = {}


def group_of(size):
    if size not in _groups:
        _groups[size] = Ranks(size)
    return _groups[size]


@atexit.register
def _leave_all():
    for group in list(_groups.values()):
        group.leave()


def on_ranks(size):
    """The function runs on each of so many ranks, as function(rank, size, ...)."""
    def decorate(function):
        @functools.wraps(function)
        def test(**parameters):
            group_of(size).run(test, *parameters.values())
        test.on_rank = function
        # pytest is to see the parameters after rank and size alone.
        import inspect
        names = list(inspect.signature(function).parameters.values())[2:]
        test.__signature__ = inspect.Signature(names)
        return test
    return decorate


def _apart(function, rank, size, folder, limit_s, path):
    _begin(path)
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    answer = f"{folder}/answer{rank}"
    try:
        dist.init_process_group(BACKEND, store=dist.FileStore(folder + "/store", size), rank=rank,
                                world_size=size, timeout=datetime.timedelta(seconds=limit_s))
        function(rank, size)
        with open(answer, "w", encoding="utf-8") as file:
            file.write("fine")
    except Exception as error:  # pylint: disable=broad-except
        with open(answer, "w", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}: {error}")


def run_apart(function, size, limit_s=5, fresh=False):
    """Ranks of their own, for what breaks a group: what each said in the end ("fine", its
    exception, or None), and how its process ended. `limit_s` is the group's deadline."""
    import sys
    made = processes(fresh)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [made.Process(target=_apart, args=(function, rank, size, folder, limit_s,
                                                   sys.path)) for rank in range(size)]
        for process in ranks:
            process.start()
        said = []
        for rank, process in enumerate(ranks):
            process.join(LIMIT_S)
            ended = process.exitcode
            if ended is None:
                process.kill()
                process.join()
            path = f"{folder}/answer{rank}"
            text = None
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            said.append((text, "did not end" if ended is None else ended))
        return said
