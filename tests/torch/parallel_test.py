"""A model that several ranks compute together gives the results of one rank: tensor parallelism by
DTensor, and pipelines."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe,
                                          ScheduleInterleaved1F1B)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

from ranks import on_ranks
from training import adam, in_one_process, model_and_batch, same_parameters, steps

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def tensor_parallel_equals_one_process(size):
    model, features, targets = model_and_batch()
    expected, losses = in_one_process(model, features, targets)
    mesh = init_device_mesh("cpu", (size,))
    for block in list(model)[:-1]:
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert isinstance(model[0][0].weight, DTensor)
    torch.testing.assert_close(steps(model, features, targets, adam(model.parameters())), losses,
                               **CLOSE)
    same_parameters(model, expected, **CLOSE)


@on_ranks(2)
def test_tensor_parallel_on_2_ranks(rank, size):
    tensor_parallel_equals_one_process(size)


@on_ranks(3)
def test_tensor_parallel_on_3_ranks(rank, size):
    """The model is 48 wide: PyTorch wants equal parts."""
    tensor_parallel_equals_one_process(size)


@on_ranks(4)
def test_tensor_parallel_on_4_ranks(rank, size):
    tensor_parallel_equals_one_process(size)


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.classes = torch.nn.Linear(16, 8)

    def forward(self, tokens):
        return self.classes(self.norm(tokens) + self.down(torch.relu(self.up(self.norm(tokens)))))


@on_ranks(2)
def test_sequence_parallel_with_a_parallel_loss(rank, size):
    torch.manual_seed(2)
    model, tokens = Normed(), torch.randn(3, 6, 16)
    labels = torch.randint(8, (3, 6))
    alone = copy.deepcopy(model)
    expected = torch.nn.functional.cross_entropy(alone(tokens).flatten(0, 1), labels.flatten())
    expected.backward()
    parallelize_module(model, init_device_mesh("cpu", (size,)), {
        "norm": SequenceParallel(use_local_output=False),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "classes": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1),
                                   use_local_output=False)})
    mesh = init_device_mesh("cpu", (size,))
    everywhere = DTensor.from_local(tokens, mesh, [Replicate()])
    with loss_parallel():
        loss = torch.nn.functional.cross_entropy(model(everywhere).flatten(0, 1),
                                                 labels.flatten())
        loss.backward()
    torch.testing.assert_close(loss.full_tensor(), expected, **CLOSE)
    for one, other in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(one.grad.full_tensor(), other.grad, **CLOSE)


def pipeline_equals_one_process(rank, schedule_type, parts_of):
    """`parts_of[rank]`: the stages that a rank has, each some layers."""
    model, features, targets = model_and_batch()
    expected, losses = in_one_process(model, features, targets)
    count = sum(map(len, parts_of))
    stages = [PipelineStage(part, number, count, torch.device("cpu"))
              for number, part in [(number, parts(model)) for number, parts in parts_of[rank]]]
    several = len(parts_of[rank]) > 1
    schedule = schedule_type(stages if several else stages[0], 4,
                             loss_fn=torch.nn.functional.mse_loss)
    mine = torch.nn.ModuleList(stage.submod for stage in stages)
    optimizer = adam(mine.parameters())
    has_last = any(number == count - 1 for number, _ in parts_of[rank])
    has_first = any(number == 0 for number, _ in parts_of[rank])
    found = []
    for _ in losses:
        optimizer.zero_grad()
        parts = [] if has_last else None
        schedule.step(*([features] if has_first else []),
                      **({"target": targets, "losses": parts} if has_last else {}))
        optimizer.step()
        if has_last:
            found.append(float(torch.stack(parts).mean()))
    if has_last:
        torch.testing.assert_close(found, losses, **CLOSE)
    for number, parts in parts_of[rank]:
        same_parameters(parts(model), parts(expected), **CLOSE)
    dist.barrier()


def layers(first, last):
    return lambda model: model[first:last]


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
@on_ranks(2)
def test_pipeline_of_2_stages(rank, size, schedule):
    pipeline_equals_one_process(rank, schedule, [[(0, layers(0, 2))], [(1, layers(2, 4))]])


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
@on_ranks(3)
def test_pipeline_of_3_stages(rank, size, schedule):
    pipeline_equals_one_process(rank, schedule, [[(0, layers(0, 1))], [(1, layers(1, 3))],
                                                 [(2, layers(3, 4))]])


@on_ranks(2)
def test_pipeline_whose_ranks_have_two_stages_each(rank, size):
    pipeline_equals_one_process(rank, ScheduleInterleaved1F1B,
                                [[(0, layers(0, 1)), (2, layers(2, 3))],
                                 [(1, layers(1, 2)), (3, layers(3, 4))]])
