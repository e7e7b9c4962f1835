"""Gyre in gloo's place: by take_over(), by a variable in programs that know nothing of it, and
beside another backend for other devices. Never without a word, and never gloo after all."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from ranks import run_apart

CPU = torch.device("cpu")
LIMIT_S = 30


def carrier(group=None, device=CPU):
    return (group or dist.group.WORLD)._get_backend(device).name()


def sums(rank, size, group=None):
    ones = torch.full((5,), float(rank))
    dist.all_reduce(ones, group=group)
    return ones.eq(size * (size - 1) / 2).all()


def unmodified(rank, size):
    """A program for gloo; its first group exists."""
    assert dist.get_backend() == "gloo"
    assert "gyre" in dist.get_backend_config() and "gloo" not in dist.get_backend_config()
    assert carrier() == "gyre" and dist.group.WORLD.name() != "gloo"
    assert sums(rank, size)
    model = torch.nn.Linear(3, 3)
    # It asks ProcessGroupGloo, if it is one, for its threads.
    model = torch.nn.parallel.DistributedDataParallel(model)
    model(torch.ones(2, 3)).sum().backward()
    dist.monitored_barrier()
    for group in (dist.new_group(), dist.new_group(backend="gloo"),
                  dist.new_group(backend="cpu:gloo")):
        assert dist.get_backend(group) in ("gloo", "cpu:gloo")
        assert carrier(group) == "gyre" and sums(rank, size, group)
        dist.barrier(group)
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    dist.init_process_group(store=store, rank=rank, world_size=size)  # PyTorch chooses
    assert carrier() == "gyre" and sums(rank, size)
    dist.barrier()
    dist.destroy_process_group()


def test_programs_that_ask_for_gloo_get_gyre_by_a_variable(monkeypatch, capfd):
    monkeypatch.setenv("GYRE_TORCH_INSTEAD_OF", "gloo")
    monkeypatch.setenv("GYRE_TEST_BACKEND", "gloo")
    assert run_apart(unmodified, 2, limit_s=LIMIT_S, fresh=True) == [("fine", 0)] * 2
    told = capfd.readouterr().err
    lines = [line for line in told.splitlines() if "carries the process group" in line]
    assert len(lines) == 2, told  # one for each default group, of rank 0 alone
    assert "Gyre carries the process group 0 of 2 ranks in the place of gloo" in lines[0]
    assert "GYRE_TORCH_INSTEAD_OF" in lines[0]
    assert "GYRE_TORCH_INSTEAD_OF is not a setting" not in told


def takes_over(rank, size):
    import gyre_torch
    before = dist.new_group(backend="gloo")
    assert carrier(before) == "gloo"
    with pytest.raises(RuntimeError, match="comes too late: this process has groups of gloo"):
        gyre_torch.take_over("gloo")
    dist.destroy_process_group(before)
    with pytest.raises(ValueError, match="got 'nccl': Gyre takes the place of 'gloo' alone"):
        gyre_torch.take_over("nccl")
    gyre_torch.take_over("gloo")
    gyre_torch.take_over("gloo")
    group = dist.new_group(backend="gloo")
    assert carrier(group) == "gyre" and sums(rank, size, group)


def test_take_over_is_refused_once_gloo_has_groups():
    assert run_apart(takes_over, 2, limit_s=LIMIT_S) == [("fine", 0)] * 2


def beside_another(rank, size):
    """As with cpu:gyre,cuda:nccl, which needs GPUs."""
    group = dist.new_group(backend="cpu:gyre,cuda:gloo")
    assert dist.get_backend_config(group) == "cpu:gyre,cuda:gloo"
    assert carrier(group) == "gyre" and carrier(group, torch.device("cuda")) == "gloo"
    assert sums(rank, size, group)


def test_gyre_serves_the_cpu_beside_another_backend():
    assert run_apart(beside_another, 2, limit_s=LIMIT_S) == [("fine", 0)] * 2


def python(program, **variables):
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_without_the_variable_nothing_of_gyre_is_loaded():
    assert python("import sys, torch\n"
                  "assert 'gyre_torch_autoload' in sys.modules\n"
                  "assert 'gyre_torch' not in sys.modules\n"
                  "assert 'libgyre' not in open('/proc/self/maps').read()") == (0, "")


@pytest.mark.parametrize("name, value, before, says", [
    ("GYRE_TORCH_INSTEAD_OF", "nccl", "", "got 'nccl': Gyre takes the place of 'gloo' alone"),
    ("GYRE_TORCH_INSTEAD_OF", "gloo", "import sys; sys.modules['gyre_torch'] = None",
     "Failed to load the backend extension: gyre"),
    ("GYRE_TORCH_INSTEAD", "gloo", "import sys; sys.modules['gyre_torch'] = None",
     "GYRE_TORCH_INSTEAD is no setting; there is GYRE_TORCH_INSTEAD_OF"),
])
def test_what_cannot_be_done_is_said(name, value, before, says):
    code, said = python(f"{before}\nimport torch", **{name: value})
    assert says in said
    assert (code != 0) == (name == "GYRE_TORCH_INSTEAD_OF")


def test_whoever_imports_gyre_torch_first_gets_the_variable_too():
    assert python("import gyre_torch, torch.distributed as dist\n"
                  "assert str(dist.distributed_c10d.BackendConfig('gloo')) == 'cpu:gyre,cuda:gyre'",
                  GYRE_TORCH_INSTEAD_OF="gloo") == (0, "")
