"""PyTorch's process groups over Gyre: torch.distributed.init_process_group("gyre").

PyTorch finds the backend by the entry point `torch.distributed.backends` from 2.13 on, and by
`torch.backends` (gyre_torch_autoload.py) before. See gyre.h for what Gyre promises.
"""

import atexit
import datetime
import os
import socket

import torch
import torch.distributed

from . import instead, native
from .instead import take_over  # noqa: F401

_C = native.load()

name = "gyre"


def _create(options, group_options):
    if group_options is not None and not instead.is_meant_for_taken(group_options):
        raise TypeError(f"gyre: pg_options of the type {type(group_options).__qualname__} were "
                        "given, and Gyre takes none: its settings are GYRE_ variables "
                        "(gyre settings), and the timeout is an argument")
    if getattr(options, "enable_reconfigure", False):
        raise ValueError("gyre: enable_reconfigure=True was given, and groups of Gyre cannot be "
                         "reconfigured: make a new group")
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
    is none that could reduce beside the backward pass. All ranks have to ask."""
    facts = (socket.gethostname(), torch.get_num_threads(), len(os.sched_getaffinity(0)))
    everywhere = [None] * group.size()
    torch.distributed.all_gather_object(everywhere, facts, group=group)
    hosts, threads, cores = zip(*everywhere)
    # Ranks that are bound to fewer cores than the host has are bound to their own.
    bound = max(cores) < os.cpu_count()
    return len(set(hosts)) == 1 and sum(threads) >= (sum(cores) if bound else max(cores))


def average_gradients(model):
    """Has a DistributedDataParallel average its gradients as it does by itself, in less time.

        model = DistributedDataParallel(model, bucket_cap_mb=5, gradient_as_bucket_view=True)
        gyre_torch.average_gradients(model)  # all ranks, before the first backward pass

    It is a communication hook in C++, and DDP takes one hook. The mean is formed by the reduction,
    which saves a pass over the gradients, and buckets of the CPU are moved to memory that peers of
    this host reach directly, once each: addresses in them that somebody keeps (p.grad.numpy() with
    gradient_as_bucket_view=True) are not theirs any more. Where ranks of one host keep all its
    cores busy (call torch.set_num_threads first), another thread would only take turns with that of
    the backward pass: so a bucket is begun when it is ready, and the thread reduces all of them at
    the last one, those of ranks that are late as well as its own. Buckets of a few MB are best.
    """
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError("gyre: average_gradients takes a DistributedDataParallel, not a "
                        f"{type(model).__name__}")
    group = model.process_group
    device = next(model.parameters()).device
    backend = group._get_backend(device)
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL, PyTorch's wrapper is around it.
    _C.average(model.reducer, getattr(backend, "wrapped_pg", backend), _leaves_no_core(group))


register()
atexit.register(_C.shut_down)
