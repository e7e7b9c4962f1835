#!/usr/bin/env python3
"""Trains a small convolutional network on scikit-learn's handwritten digits, on one rank or many.

    digits.py                                      one rank
    torchrun --nproc-per-node 2 digits.py          two (also: gyre run -n 2 python digits.py)

n ranks with --batch B train like one rank with --batch nB. One in five of the 1,797 pictures is
kept for the test; the program prints its accuracy at the end.
"""

import torch
from torch import nn
from torch.nn import functional

import training_loop

CLASSES, SIDE, TESTED = 10, 8, 5


def options_parser():
    parser = training_loop.parser_of(__doc__, batch=32, steps=500, rate=2e-3)
    parser.add_argument("--channels", type=int, default=16,
                        help="channels of the first layer (default: 16)")
    return parser


class DigitsNet(nn.Module):
    """Two convolutions and two dense layers; nothing in it depends on how a batch is shared out."""

    def __init__(self, channels):
        super().__init__()
        self.blocks = nn.ModuleList([
            nn.Conv2d(1, channels, 3, padding=1), nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.Linear(2 * channels * (SIDE // 2) ** 2, 4 * channels)])
        self.head = nn.Linear(4 * channels, CLASSES)

    def forward(self, pictures):
        first, second, dense = self.blocks
        x = functional.relu(second(functional.relu(first(pictures))))
        x = functional.max_pool2d(x, 2).flatten(1)
        return self.head(functional.relu(dense(x))).float()


class Digits(training_loop.Task):
    """Which digit a picture of 8 by 8 shows."""
    source = "scikit-learn's digits"

    def __init__(self, options):
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise ValueError(f"the pictures are scikit-learn's, which is not here: {error}") \
                from error
        self.options = options
        found = load_digits()
        pictures = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(found.target)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        tested = len(labels) // TESTED
        self.test = pictures[order[:tested]], labels[order[:tested]]
        self.pictures, self.labels = pictures[order[tested:]], labels[order[tested:]]

    def model(self):
        return DigitsNet(self.options.channels)

    def loss(self, model, step, part, parts):
        chosen = training_loop.drawn(self.options, step, part, parts, len(self.labels))
        return functional.cross_entropy(model(self.pictures[chosen]), self.labels[chosen])

    def scores(self, model, job):
        pictures, labels = self.test
        share = training_loop.dealt(job, len(labels))
        chosen = [number for number, _ in share]
        right = model(pictures[chosen]).argmax(1) == labels[chosen]
        counted = torch.tensor([counts for _, counts in share])
        right, = training_loop.total(job, [float((right & counted).sum())])
        return {"test accuracy": right / len(labels)}


if __name__ == "__main__":
    training_loop.main(Digits, options_parser())
