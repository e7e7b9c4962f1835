"""PyTorch's process groups over Gyre: torch.distributed.init_process_group("gyre").

PyTorch finds the backend by the entry point `torch.distributed.backends` from 2.13 on, and by
`torch.backends` (gyre_torch_autoload.py) before. See gyre.h for what Gyre promises.
"""

import atexit
import datetime

import torch
import torch.distributed

from . import gradients, instead, native
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


def average_gradients(model):
    """Has a DistributedDataParallel average its gradients by Gyre's communication hook in C++.

    A model on the CPU gets it by itself (gradients.py), unless GYRE_TORCH_DDP=plain. This call is
    for models on devices, for gradients of half precision, and to be sure: it fails where the hook
    cannot be. All ranks call it, before the first forward pass.
    """
    gradients.average(_C, model)


register()
gradients.average_by_default(_C)
atexit.register(_C.shut_down)
