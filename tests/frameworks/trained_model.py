"""What all the programs here train: a transformer on made-up tokens. They know nothing of Gyre, as
programs of users do. Rank 0 writes its losses and the time of each step."""

import argparse
import json
import os
import signal
import time

import torch

VOCABULARY, LENGTH = 512, 32


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=4, help="of each rank")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--die-at", type=int, default=-1, help="step at which rank 1 is killed")
    parser.add_argument("--stage", type=int, default=1, help="of ZeRO, for DeepSpeed")
    parser.add_argument("--report", required=True, help="file for the losses")
    return parser.parse_args()


class Tokens(torch.utils.data.Dataset):
    """Each row counts up from where it begins, so there is something to learn."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        first = torch.tensor(row * 37 % VOCABULARY)
        tokens = (first + torch.arange(LENGTH)) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens.clone()}


class Model(torch.nn.Module):
    """Takes tokens, returns the loss."""

    def __init__(self, width):
        super().__init__()
        torch.manual_seed(7)
        self.embedding = torch.nn.Embedding(VOCABULARY, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(width, VOCABULARY)

    def forward(self, input_ids, labels):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH - 1)
        hidden = self.layers(self.embedding(input_ids[:, :-1]), mask=mask)
        return torch.nn.functional.cross_entropy(self.head(hidden).flatten(0, 1),
                                                 labels[:, 1:].flatten())


class Report:
    """Of the steps of one rank."""

    def __init__(self, chosen, rank):
        self.chosen, self.rank = chosen, rank
        self.losses, self.seconds = [], []
        self.begun = time.monotonic()

    def step(self, loss):
        """After each."""
        now = time.monotonic()
        self.losses.append(float(loss))
        self.seconds.append(now - self.begun)
        self.begun = now
        if self.rank == 1 and len(self.losses) == self.chosen.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self):
        if self.rank == 0:
            with open(self.chosen.report, "w", encoding="utf-8") as file:
                json.dump({"losses": self.losses, "seconds": self.seconds}, file)
