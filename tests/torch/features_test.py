"""What programs use beside collectives: PyTorch's debug mode, autocast with a GradScaler, compiled
DDP, torchrun's restarts, options of groups."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks, run_apart
from training import model_and_batch, share

LIMIT_S = 30


def in_detail(rank, size):
    """PyTorch compares the ranks' calls before it passes them on."""
    import gyre_torch
    group = dist.group.WORLD
    assert type(group._get_backend(torch.device("cpu"))).__name__ == "_ProcessGroupWrapper"
    ones = torch.ones(4)
    dist.all_reduce(ones)
    assert ones.eq(size).all()
    model, features, targets = model_and_batch()
    model = DistributedDataParallel(model)
    gyre_torch.average_gradients(model)
    torch.nn.functional.mse_loss(model(share(features, rank, size)),
                                 share(targets, rank, size)).backward()
    parts = [torch.empty(2) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    assert torch.cat(parts).tolist() == [0, 0, 1, 1]
    dist.barrier()
    with pytest.raises(RuntimeError, match="mismatch between collectives on ranks"):
        dist.all_reduce(torch.ones(3 + rank))


def test_debug_mode_compares_calls(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    assert run_apart(in_detail, 2, limit_s=LIMIT_S, fresh=True) == [("fine", 0)] * 2


@pytest.mark.parametrize("overflows", [False, True])
@on_ranks(2)
def test_autocast_with_a_scaler(rank, size, overflows):
    """A gradient that overflows on one rank has both leave the step out, and halve the scale."""
    model, features, targets = model_and_batch()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = model.module[-1].weight.detach().clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(share(features, rank, size)).float(),
                                            share(targets, rank, size))
    scaler.scale(loss * (float("inf") if overflows and rank == 1 else 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == (512.0 if overflows else 1024.0)
    assert torch.equal(before, model.module[-1].weight) == overflows
    both = [torch.empty_like(before) for _ in range(size)]
    dist.all_gather(both, model.module[-1].weight.detach())
    assert torch.equal(both[0], both[1])


@pytest.mark.parametrize("compiler", ["aot_eager",
                                      pytest.param("inductor", marks=pytest.mark.long)])
@on_ranks(2)
def test_compiled_ddp_equals_ddp(rank, size, compiler):
    """DDPOptimizer splits the graph where buckets end. They have at least 1 MB, as the first."""
    import copy
    model, features, targets = model_and_batch(width=256)
    features, targets = share(features, rank, size), share(targets, rank, size)
    plain = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=1)
    compiled = torch.compile(DistributedDataParallel(model, bucket_cap_mb=1), backend=compiler)
    for _ in range(3):
        for one in (plain, compiled):
            one.zero_grad()
            torch.nn.functional.mse_loss(one(features), targets).backward()
    for one, other in zip(plain.parameters(), model.parameters()):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("compiler", ["aot_eager",
                                      pytest.param("inductor", marks=pytest.mark.long)])
@on_ranks(2)
def test_compiled_shards_equal_ddp(rank, size, compiler):
    import copy
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model, features, targets = model_and_batch()
    features, targets = share(features, rank, size), share(targets, rank, size)
    plain = DistributedDataParallel(copy.deepcopy(model))
    mesh = init_device_mesh("cpu", (size,))
    for block in model:
        fully_shard(block, mesh=mesh)
    compiled = torch.compile(fully_shard(model, mesh=mesh), backend=compiler)
    for one in (plain, compiled):
        torch.nn.functional.mse_loss(one(features), targets).backward()
    for one, other in zip(plain.parameters(), model.parameters()):
        torch.testing.assert_close(one.grad, other.grad.full_tensor())


RESTARTED = """
import os, signal, torch, torch.distributed as dist
dist.init_process_group("gyre")
again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
ones = torch.ones(3)
dist.all_reduce(ones)
if again == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(ones)
# In one write: torchrun starts ranks without buffers, and they share the pipe.
print(f"rank {dist.get_rank()} attempt {again} {ones.tolist()}\\n", end="")
dist.destroy_process_group()
"""


def test_torchrun_starts_ranks_again(tmp_path):
    """In the same store, where the group of the first attempt has left its keys."""
    program = tmp_path / "program.py"
    program.write_text(RESTARTED)
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                           "--nproc-per-node", "2", "--max-restarts", "1", str(program)],
                          capture_output=True, text=True, timeout=100, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert f"rank {rank} attempt 1 [4.0, 4.0, 4.0]" in done.stdout


@on_ranks(2)
def test_options_of_other_backends_are_refused(rank, size):
    with pytest.raises(TypeError, match="pg_options of the type object .* its settings are GYRE_"):
        dist.new_group(pg_options=object())


def hear(rank, size):
    """Before the caller has its exception, by whatever thread the operation failed."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    heard = []
    backend.register_abort_hook(7, lambda: heard.append("kept"))
    backend.register_abort_hook(8, lambda: heard.append("taken away"))
    backend.register_abort_hook(9, lambda: 1 / 0)
    backend.unregister_abort_hook(8)
    dist.all_reduce(torch.ones(3))
    with pytest.raises(ValueError):
        dist.broadcast(torch.ones(2), 5)
    assert heard == []
    if rank == 1:
        backend.abort()
    elif sys.argv[-1] != "asynchronously":
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(3))
    else:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(3), async_op=True).wait()
    assert heard and set(heard) == {"kept"}, heard


def hear_asynchronously(rank, size):
    sys.argv.append("asynchronously")
    hear(rank, size)


@pytest.mark.parametrize("listener", [hear, hear_asynchronously])
def test_hooks_hear_of_failures_and_of_an_abort(listener):
    if not hasattr(torch._C._distributed_c10d.Backend, "register_abort_hook"):
        pytest.skip("this PyTorch has no abort hooks: 2.14 does")
    assert run_apart(listener, 2, limit_s=LIMIT_S) == [("fine", 0)] * 2


@on_ranks(2)
def test_completion_hook_hears_what_has_ended(rank, size):
    """In the order of the ends, whoever carries the operation out, and only if it ended well."""
    group = dist.new_group()
    heard = []

    def hear_or_fail(info):
        heard.append(info)
        raise ValueError("a warning, and no more")
    assert not group._has_hooks()
    dist.all_reduce(torch.ones(3), group=group)  # nobody hears of it
    group._register_on_completion_hook(hear_or_fail)
    assert group._has_hooks()
    dist.all_reduce(torch.ones(3), group=group)
    dist.broadcast(torch.ones(3), 0, group=group, async_op=True).wait()
    with pytest.raises(ValueError):
        dist.broadcast(torch.ones(2), 5, group=group)
    dist.all_gather([torch.empty(5) for _ in range(size)], torch.ones(5), group=group)
    last = dist.all_reduce(torch.ones(1 << 20), group=group, async_op=True)
    group._wait_for_pending_works()
    assert last.is_completed()
    told = [(str(one.op_type).rsplit(".", maxsplit=1)[-1], one.seq) for one in heard]
    assert told == [("ALLREDUCE", 2), ("BROADCAST", 3), ("ALLGATHER", 4), ("ALLREDUCE", 5)], told
    for one in heard:
        took = one.time_finished - one.time_started
        assert took.total_seconds() > 0
        assert abs(took - one.active_duration).total_seconds() < 1e-3
    with pytest.raises(RuntimeError, match="on-completion hook already"):
        group._register_on_completion_hook(print)
    dist.destroy_process_group(group)


def dump_at_failure(rank, size):
    """PyTorch's flight recorder beside Gyre, and what it holds when an operation fails."""
    import json
    from torch._C import _distributed_c10d as c10d
    recorder = c10d.FlightRecorderHook.attach(dist.group.WORLD)
    dumps = []
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.register_abort_hook(1, lambda: dumps.append(c10d._dump_fr_trace_json(True, False)))
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(4, dtype=torch.int32), 0)
    dist.all_gather([torch.empty(5) for _ in range(size)], torch.ones(5))
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["rank 0 has gathered"])
        backend.abort()
        return
    store.set("rank 0 has gathered", "")
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(6))
    dump = json.loads(dumps[0])
    held = [(entry["profiling_name"].split(":")[-1], entry["input_sizes"][0], entry["retired"])
            for entry in dump["entries"]]
    assert held == [("allreduce", [3], True), ("broadcast", [4], True), ("allgather", [5], True),
                    ("allreduce", [6], False)], held
    assert dump["pg_config"]["0"]["ranks"] == "[0, 1]", dump["pg_config"]
    recorder.remove()


def test_pytorchs_flight_recorder_holds_what_failed():
    if not hasattr(torch._C._distributed_c10d, "FlightRecorderHook"):
        pytest.skip("this PyTorch has no flight recorder for other backends: 2.14 does")
    assert run_apart(dump_at_failure, 2, limit_s=LIMIT_S) == [("fine", 0)] * 2
