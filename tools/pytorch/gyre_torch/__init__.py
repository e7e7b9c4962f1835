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


register()
atexit.register(_C.say_farewell)
