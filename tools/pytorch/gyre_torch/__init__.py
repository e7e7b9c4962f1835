"""PyTorch's process groups over Gyre: torch.distributed.init_process_group("gyre").

PyTorch finds the backend by the entry point `torch.distributed.backends`; one that knows no such
entry points (before 2.13) has to `import gyre_torch` first. See gyre.h for what Gyre promises.
"""

import atexit
import datetime
import os
import socket
import weakref

import torch
import torch.distributed

from . import _C

name = "gyre"
_crowded = weakref.WeakKeyDictionary()  # by group: whether its ranks leave no core
_begun = weakref.WeakKeyDictionary()  # by group: futures of buckets, and these, until the last one


def _create(options, group_options):
    del group_options  # Gyre takes its settings from GYRE_ variables
    return _C.create(options.store, options.group_rank, options.group_size, options.timeout,
                     options.group_id)


def register():
    """Tells torch.distributed of the backend. A second call does nothing."""
    backend = torch.distributed.Backend
    if name.upper() not in backend._plugins:
        backend.register_backend(name, _create, extended_api=True, devices=["cpu", "cuda"])


def create(store, rank, size, timeout=datetime.timedelta(minutes=30), group=""):
    """A backend over a store, as register() makes it."""
    return _C.create(store, rank, size, timeout, group)


def _leaves_no_core(group):
    """Whether the ranks of the group are all on this host, and keep all its cores busy: then there
    is none that could reduce beside the backward pass. The first time, all ranks have to ask."""
    if group not in _crowded:
        facts = (socket.gethostname(), torch.get_num_threads(), len(os.sched_getaffinity(0)))
        everywhere = [None] * group.size()
        torch.distributed.all_gather_object(everywhere, facts, group=group)
        hosts, threads, cores = zip(*everywhere)
        # Ranks that are bound to fewer cores than the host has are bound to their own.
        bound = max(cores) < os.cpu_count()
        _crowded[group] = (len(set(hosts)) == 1 and
                           sum(threads) >= (sum(cores) if bound else max(cores)))
    return _crowded[group]


def average_hook(group, bucket):
    """A DDP communication hook that averages as DDP does by itself, in less time.

        model.register_comm_hook(None, gyre_torch.average_hook)  # None: the default group

    The mean is formed by the reduction, which saves a pass over the gradients, and buckets of the
    CPU are moved to memory that peers of this host reach directly, once each: addresses in them
    that somebody keeps (p.grad.numpy() with gradient_as_bucket_view=True) are not theirs any more.
    Where ranks of one host keep all its cores busy, another thread would only take turns with that
    of the backward pass: so a bucket is begun when it is ready, and the thread reduces all of them
    at the last one, those of ranks that are late as well as its own. Buckets of a few MB
    (bucket_cap_mb) are best for that.
    """
    group = torch.distributed.group.WORLD if group is None else group
    gradients = bucket.buffer()
    _C.move_to_shared(gradients)
    if gradients.device.type != "cpu" or not _leaves_no_core(group):
        work = torch.distributed.all_reduce(gradients, torch.distributed.ReduceOp.AVG, group=group,
                                            async_op=True)
        return work.get_future().then(lambda done: done.value()[0])
    backend = group._get_backend(gradients.device)
    _C.begin_average(backend, gradients)
    done = torch.futures.Future()
    _begun.setdefault(group, []).append((done, gradients))
    if bucket.is_last():
        begun = _begun.pop(group)
        _C.finish_averages(backend)
        for future, tensor in begun:
            future.set_result(tensor)
    return done


register()
atexit.register(_C.say_farewell)
