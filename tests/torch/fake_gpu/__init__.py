"""GPUs without a GPU, for a PyTorch without CUDA: "cuda:0" and so on over Gyre's fake driver.

Import it before torch, which asks once whether there is CUDA. start() makes the devices, once in a
process, and not before a fork. LD_LIBRARY_PATH leads to the libgyre.so.0 that has the driver.
"""

import contextlib
import ctypes
import importlib.util
import sys

if "torch" not in sys.modules:
    ctypes.CDLL(importlib.util.find_spec("fake_gpu._C").origin)

import torch

from . import _C
from ._C import (begin_capture, close_gate, destroy_graph, end_capture, failure, is_idle,
                 launch_graph, open_gate, peek)

torch.cuda._lazy_init = lambda: None
torch.cuda.is_available = lambda: _C.device_count() > 0
torch.cuda.device_count = _C.device_count
torch.cuda.get_device_capability = lambda device=None: (9, 0)


def start(devices=1):
    if _C.device_count() == 0:
        _C.start(devices)


@contextlib.contextmanager
def gate(device=0):
    """Nothing goes on, within it, that is put on the current stream."""
    closed = close_gate(device)
    try:
        yield
    finally:
        open_gate(closed)
