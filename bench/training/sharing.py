"""How ranks that train together share a model: not at all, its optimizer's state, parts of
everything, or by a parameter server."""

import contextlib
import dataclasses
import functools
import typing

import torch
import torch.distributed as dist
from torch import nn

IN_SHARDS = {"zero2": False, "zero3": True, "fsdp": True, "hsdp": True}  # after forward, again
CHOICES = ["ddp", "zero1", *IN_SHARDS, "server"]
HELP = ("how ranks share the model: ddp not at all (default), zero1 the optimizer's state, zero2 "
        "gradients too, zero3 (fsdp) parameters too, hsdp like zero3 within each of --replicas "
        "groups; server: rank 0 alone updates")
APART = "apart"  # no choice of programs: ranks that never talk, the floor of benchmarks


@dataclasses.dataclass
class Shared:
    """A model to call, its optimizer, and a context for passes whose gradients stay here."""
    model: nn.Module
    optimizer: object
    unsynchronised: typing.Callable = contextlib.nullcontext
    together: bool = True


def check(options, size):
    """Refuses what cannot be."""
    if options.parallel == "hsdp" and (options.replicas < 1 or size % options.replicas != 0 or
                                       size <= options.replicas):
        raise ValueError(f"--parallel hsdp needs a multiple of --replicas ({options.replicas}) "
                         f"ranks, and more than these: {size}")
    if options.dtype != "float32" and (options.parallel not in IN_SHARDS or size == 1):
        raise ValueError(f"--dtype {options.dtype} is for two ranks or more with --parallel "
                         f"{', '.join(IN_SHARDS)}")


def optimizer_kind(options):
    """What makes an optimizer of parameters."""
    if options.optimizer == "sgd":
        return functools.partial(torch.optim.SGD, lr=options.rate, momentum=0.9)
    return functools.partial(torch.optim.AdamW, lr=options.rate, weight_decay=0.01)


def has_shared_memory(job, options):
    """Whether gradients are to lie where the group's ranks reach each other's."""
    return not options.plain and dist.get_backend(job.group) == "gyre"


def share_out(task, job, options):
    """A new model of the task, with its optimizer, as the ranks share it."""
    check(options, job.size)
    model, optimizer_of = task.model(), optimizer_kind(options)
    if job.size == 1 or options.parallel == APART:
        return Shared(model, optimizer_of(model.parameters()), together=False)
    if options.parallel in IN_SHARDS:
        return in_shards(model, task.units(model), job, options)
    if options.parallel == "server":
        return Shared(model, ServedOptimizer(model.parameters(), optimizer_of, job))
    wrapped = nn.parallel.DistributedDataParallel(
        model, process_group=job.group, bucket_cap_mb=options.bucket_mb,
        gradient_as_bucket_view=True)
    if options.parallel == "ddp":
        optimizer = optimizer_of(wrapped.parameters())
    else:
        from torch.distributed.optim import ZeroRedundancyOptimizer
        optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_of.func,
                                            process_group=job.group, **optimizer_of.keywords)
    return Shared(wrapped, optimizer, wrapped.no_sync)


def mesh_of(job, options):
    """The ranks as FSDP2 wants them: in a row, or replicas by shards."""
    from torch.distributed.device_mesh import DeviceMesh
    if options.parallel == "hsdp":
        return DeviceMesh("cpu", torch.arange(job.size).view(options.replicas, -1),
                          mesh_dim_names=("replicas", "shards"))
    if job.group is not None:
        return DeviceMesh.from_group(job.group, "cpu")
    return DeviceMesh("cpu", torch.arange(job.size))


def in_shards(model, units, job, options):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    settings = {"mesh": mesh_of(job, options),
                "reshard_after_forward": IN_SHARDS[options.parallel]}
    if options.dtype == "bfloat16":
        settings["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                                     reduce_dtype=torch.float32)
    for unit in units:
        fully_shard(unit, **settings)
    model = fully_shard(model, **settings)
    if has_shared_memory(job, options):
        for unit in (*units, model):
            unit.set_allocate_memory_from_process_group_for_comm(True)

    @contextlib.contextmanager
    def unsynchronised():
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)
    return Shared(model, optimizer_kind(options)(model.parameters()), unsynchronised)


class ServedOptimizer:
    """A parameter server. Each rank's gradients go to rank 0, summed on the way; rank 0 alone has
    the optimizer and its state, and sends every rank the parameters that it makes of them. (Rank 0
    computes its part of the examples as well.) All gradients lie in one tensor, and all parameters
    in another, so that each goes as one message."""

    def __init__(self, parameters, optimizer_of, job):
        self.job, self.parameters = job, list(parameters)
        with torch.no_grad():
            self.values = torch.cat([one.flatten() for one in self.parameters])
        self.gradients = torch.zeros_like(self.values)
        place = 0
        for one in self.parameters:
            end = place + one.numel()
            one.data = self.values[place:end].view_as(one)
            one.grad = self.gradients[place:end].view_as(one)
            place = end
        dist.broadcast(self.values, self.server(), group=job.group)
        self.optimizer = optimizer_of(self.parameters) if job.rank == 0 else None

    def server(self):
        return 0 if self.job.group is None else dist.get_global_rank(self.job.group, 0)

    def zero_grad(self):
        self.gradients.zero_()

    def step(self):
        dist.reduce(self.gradients, self.server(), group=self.job.group)
        if self.optimizer is not None:
            self.gradients /= self.job.size
            self.optimizer.step()
        dist.broadcast(self.values, self.server(), group=self.job.group)
