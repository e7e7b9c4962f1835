"""DistributedDataParallel's gradients, averaged by Gyre's communication hook in C++.

The reduction forms the mean, which saves a pass over the gradients. Buckets of the CPU are moved,
once each, to memory that peers of this host reach directly: addresses in them that somebody keeps
(p.grad.numpy() with gradient_as_bucket_view=True) are not theirs any more. If the ranks of one host
keep all its cores busy, another thread would only take turns with that of the backward pass. Then a
bucket is begun when it is ready, and the thread reduces all of them at the last one: its own, and
those of ranks that are late.

DDP takes one hook. A model whose parameters lie on the CPU gets Gyre's at its first forward pass,
unless it has another one by then.
"""

import functools
import os
import socket
import weakref
import zlib

import torch
from torch.nn.parallel import DistributedDataParallel

SWITCH = "GYRE_TORCH_DDP"
# Of what DDP would divide before the sum: half precision could overflow in it.
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
CPU = torch.device("cpu")

_averaged = weakref.WeakSet()  # models


def _backend(model, device):
    backend = model.process_group._get_backend(device)
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL, PyTorch's wrapper is around it.
    return getattr(backend, "wrapped_pg", backend)


def average(extension, model, at_the_last=None):
    """Registers the hook. All ranks do, before the first backward pass."""
    if not isinstance(model, DistributedDataParallel):
        raise TypeError("gyre: average_gradients takes a DistributedDataParallel, not a "
                        f"{type(model).__name__}")
    cores = (zlib.crc32(socket.gethostname().encode()), torch.get_num_threads(),
             len(os.sched_getaffinity(0)), os.cpu_count())
    backend = _backend(model, next(model.parameters()).device)
    extension.average(model.reducer, backend, cores, at_the_last)
    _averaged.add(model)


def _suits(extension, model):
    """Whether the hook does what DDP would, in less time. In join(), a rank without inputs has no
    forward pass, so that it would not get the hook."""
    trained = [one for one in model.parameters() if one.requires_grad]
    if model._join_config.enable or getattr(model, "reducer", None) is None:
        return False
    if any(one.device != CPU or one.dtype not in DTYPES for one in trained):
        return False
    try:
        return isinstance(_backend(model, CPU), extension.Backend)
    except RuntimeError:  # it has none for the CPU
        return False


def average_by_default(extension):
    """From now on, models get the hook by themselves."""
    chosen = os.environ.get(SWITCH, "average")
    if chosen not in ("average", "plain"):
        raise ValueError(f"gyre: {SWITCH} is {chosen!r}: it takes 'average' or 'plain'")
    if chosen == "average":
        _average_from_first_forward(extension)
    _refuse_uneven_means()


def _average_from_first_forward(extension):
    build = DistributedDataParallel.__init__
    begin = DistributedDataParallel._lazy_init  # called once, before the first forward pass

    @functools.wraps(begin)
    def begin_and_average(model):
        begin(model)
        if not _suits(extension, model):
            return
        try:
            average(extension, model)
        except RuntimeError as error:
            if "can only be called once" not in str(error):  # it has a hook
                raise

    @functools.wraps(build)
    def build_and_prepare(model, *given, **options):
        # Not before: PyTorch takes seconds to load its compiler, and the first model does that.
        if DistributedDataParallel._lazy_init is begin:
            DistributedDataParallel._lazy_init = torch.compiler.disable(begin_and_average)
        build(model, *given, **options)
    DistributedDataParallel.__init__ = build_and_prepare


def _refuse_uneven_means():
    """DDP divides by the number of ranks that have inputs left where there is no hook alone."""
    enter = DistributedDataParallel.join_hook

    @functools.wraps(enter)
    def enter_or_refuse(model, **options):
        if model in _averaged and not options.get("divide_by_initial_world_size", True):
            raise ValueError("gyre: join(divide_by_initial_world_size=False) of a model whose "
                             "gradients Gyre's hook averages over all ranks. Set "
                             f"{SWITCH}=plain on all ranks, or enter join() before the first "
                             "forward pass")
        return enter(model, **options)
    DistributedDataParallel.join_hook = enter_or_refuse
