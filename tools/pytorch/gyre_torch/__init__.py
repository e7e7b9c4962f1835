"""PyTorch's process groups over Gyre: torch.distributed.init_process_group("gyre").

PyTorch finds the backend by the entry point `torch.distributed.backends`; one that knows no such
entry points (before 2.13) has to `import gyre_torch` first. See gyre.h for what Gyre promises.
"""

import atexit
import datetime

import torch
import torch.distributed

from . import _C

name = "gyre"


def _create(options, group_options):
    del group_options  # Gyre takes its settings from GYRE_ variables
    return _C.create(options.store, options.group_rank, options.group_size, options.timeout,
                     options.group_id)


def register():
    """Tells torch.distributed of the backend. A second call does nothing."""
    backend = torch.distributed.Backend
    if name.upper() not in backend._plugins:
        backend.register_backend(name, _create, extended_api=True, devices=["cpu"])


def create(store, rank, size, timeout=datetime.timedelta(minutes=30), group=""):
    """A backend over a store, as register() makes it."""
    return _C.create(store, rank, size, timeout, group)


def average_hook(group, bucket):
    """A DDP communication hook that averages as DDP does by itself, in less time.

        model.register_comm_hook(None, gyre_torch.average_hook)  # None: the default group

    The mean is formed by the reduction, which saves a pass over the gradients, and the buckets are
    moved to memory that peers of this host reach directly, once each: addresses in them that
    somebody keeps (p.grad.numpy() with gradient_as_bucket_view=True) are not theirs any more.
    """
    group = torch.distributed.group.WORLD if group is None else group
    gradients = bucket.buffer()
    _C.move_to_shared(gradients)
    work = torch.distributed.all_reduce(gradients, torch.distributed.ReduceOp.AVG, group=group,
                                        async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


register()
atexit.register(_C.say_farewell)
