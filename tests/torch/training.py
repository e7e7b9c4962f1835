"""Shared by the tests of training: a small model, its batch, and training it in one process."""

import copy

import torch

LAYERS = 3


def model_and_batch(dtype=torch.float32, width=24, rows=24):
    """The same on every rank. Rows: a share for each of 2, 3 and 4 ranks."""
    torch.manual_seed(11)
    blocks = [torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.GELU(),
                                  torch.nn.Linear(2 * width, width)) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*blocks, torch.nn.Linear(width, 5)).to(dtype)
    return model, torch.randn(rows, width, dtype=dtype), torch.randn(rows, 5, dtype=dtype)


def model_and_data(dtype=torch.float64):
    """A perceptron and its batch, the same on every rank."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(),
                                torch.nn.Linear(300, 300), torch.nn.ReLU(),
                                torch.nn.Linear(300, 4)).to(dtype)
    return model, torch.randn(12, 20, dtype=dtype), torch.randn(12, 4, dtype=dtype)


def train(model, features, targets, steps=5):
    """By SGD with momentum; returns the parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(features), targets).backward()
        optimizer.step()
    return [one.detach().clone() for one in model.parameters()]


def share(tensor, index, count):
    return tensor.chunk(count)[index]


def adam(parameters):
    # A large epsilon: the first steps are else the signs of gradients, which rounding turns.
    return torch.optim.AdamW(parameters, lr=0.01, eps=0.1)


def steps(model, features, targets, optimizer, count=4):
    """Trains; returns the losses."""
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(features).to(targets.dtype), targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def in_one_process(model, features, targets, count=4):
    """The model after so many steps on the whole batch, and the losses."""
    alone = copy.deepcopy(model)
    losses = steps(alone, features, targets, adam(alone.parameters()), count)
    assert losses[-1] < losses[0], "a model that learns nothing would show nothing"
    return alone, losses


def whole(tensor):
    """A distributed tensor as one."""
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def same_parameters(model, expected, **tolerance):
    """Every rank has to call it: it gathers."""
    found = dict(model.named_parameters())
    wanted = dict(expected.named_parameters())
    assert sorted(found) == sorted(wanted)
    for name, parameter in wanted.items():
        torch.testing.assert_close(whole(found[name]), parameter.detach(), **tolerance,
                                   msg=lambda text, name=name: f"{name}: {text}")
