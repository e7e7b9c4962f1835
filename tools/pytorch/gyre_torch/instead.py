"""Gyre in the place of another backend: groups that a program makes with "gloo" are Gyre's."""

import functools
import logging

from torch.distributed import distributed_c10d as c10d

OURS = "gyre"
DEVICES = ("cpu", "cuda")  # that Gyre serves
CUSTOM = c10d.ProcessGroup.BackendType.CUSTOM

log = logging.getLogger("gyre_torch")
_taken = []


def take_over(name="gloo", because="take_over"):
    """From now on, groups of this process that ask for gloo are made by Gyre: by its name, as a
    part of "cpu:gloo,cuda:nccl", or as PyTorch's default. All ranks have to do the same, before
    init_process_group. dist.get_backend() still says "gloo", as programs ask it what they may do;
    dist.get_backend_config() says "gyre". The variable GYRE_TORCH_INSTEAD_OF=gloo calls this in
    programs that are not to be changed."""
    if name != "gloo":
        raise ValueError(f"gyre: {because} got {name!r}: Gyre takes the place of 'gloo' alone")
    if name in _taken:
        return
    if any(f":{name}" in one for one in c10d._world.pg_backend_config.values()):
        raise RuntimeError(f"gyre: {because} comes too late: this process has groups of {name} "
                           "already. Call it before init_process_group")
    _replace_in_configs(name)
    _tell_of_groups(name, because)
    # In C++, PyTorch takes a backend with gloo's own number for a ProcessGroupGloo.
    c10d.Backend.backend_type_map[name] = CUSTOM
    _taken.append(name)


def is_meant_for_taken(options):
    """Whether pg_options are those of a backend whose place we took. gloo does not read them."""
    return getattr(options, "backend", None) in _taken


def _replace_in_configs(name):
    """Which backend serves which device is decided in BackendConfig, in all releases."""
    decide = c10d.BackendConfig.__init__

    @functools.wraps(decide)
    def decide_for_us(self, backend):
        decide(self, backend)
        for device, chosen in self.device_backend_map.items():
            if chosen != name:
                continue
            if device in DEVICES:
                self.device_backend_map[device] = OURS
            else:
                log.warning("gyre_torch: %s carries tensors on %s, which Gyre does not serve",
                            name, device)
    c10d.BackendConfig.__init__ = decide_for_us


def _tell_of_groups(name, because):
    make = c10d._new_process_group_helper

    @functools.wraps(make)
    def make_and_tell(*given, **options):
        group, store = make(*given, **options)
        config = c10d._world.pg_backend_config.get(group, "")
        served = [pair.split(":") for pair in config.split(",") if pair]
        devices = " and ".join(device for device, backend in served if backend == OURS)
        if devices:
            if all(backend == OURS for _, backend in served):
                group._set_default_backend(CUSTOM)  # some releases take gloo's number
            # One line a job; further groups are told at the level INFO.
            is_first = len(c10d._world.pg_map) == 1 and group.rank() == 0
            log.log(logging.WARNING if is_first else logging.INFO,
                    "gyre_torch: Gyre carries the process group %s of %d ranks in the place of %s "
                    "(tensors on %s; %s)", group.group_name or "0", group.size(), name, devices,
                    because)
        return group, store
    c10d._new_process_group_helper = make_and_tell
