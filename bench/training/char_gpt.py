#!/usr/bin/env python3
"""Trains a small GPT on characters: on one rank, or data-parallel on many, sharded or not.

    char_gpt.py                                    one rank
    torchrun --nproc-per-node 2 char_gpt.py        two (also: gyre run -n 2 python char_gpt.py)

n ranks with --batch B train like one rank with --batch nB: each step draws the same examples, and
each rank takes its part of them. The text is --data, or else the King James Bible of Debian's
package bible-kjv-text, or else the modules of Python's own library, which every machine has.
"""
import pathlib
import subprocess
import sysconfig

import torch
from torch import nn
from torch.nn import functional

import training_loop

BIBLE = pathlib.Path("/usr/lib/bible.data")  # of Debian's bible-kjv-text


def options_parser():
    parser = training_loop.parser_of(__doc__)
    parser.add_argument("--data", nargs="+", metavar="FILE",
                        help="text to learn (default: the Bible of Debian's bible-kjv-text if "
                        "installed, else Python's library)")
    parser.add_argument("--layers", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--width", type=int, default=256, help="(default: %(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--context", type=int, default=96, help="characters (default: 96)")
    return parser


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.take, self.give = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.take(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.give(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class CharGpt(nn.Module):
    def __init__(self, characters, options):
        super().__init__()
        self.characters = nn.Embedding(characters, options.width)
        self.places = nn.Embedding(options.context, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads)
                                    for _ in range(options.layers))
        self.norm, self.head = nn.LayerNorm(options.width), nn.Linear(options.width, characters)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text):
        x = self.characters(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        # A row for each character, as FSDP2 wants no view; in float32, as losses are.
        return self.head(self.norm(x).flatten(0, 1)).float()


def bible():
    """Its text, of 4.4 MB: behind an index one stream as compress(1) makes it, which gzip reads."""
    packed = BIBLE.read_bytes()
    start = packed.find(b"\x1f\x9d")
    done = subprocess.run(["gzip", "-dc"], input=packed[max(start, 0):], capture_output=True,
                          check=False)
    if start < 0 or done.returncode != 0:
        raise ValueError(f"{BIBLE} is not as bible-kjv-text has it: give a text by --data")
    return done.stdout.decode("ascii", errors="replace")


def source(paths):
    """What text it is."""
    if paths is not None:
        return " ".join(paths)
    return "bible-kjv-text" if BIBLE.exists() else "Python's library"


def read_text(paths):
    """The text's characters as numbers, and how many different ones there are."""
    if paths is None and BIBLE.exists():
        text = bible()
    else:
        if paths is None:
            library = pathlib.Path(sysconfig.get_paths()["stdlib"])
            paths = sorted(path for path in library.glob("*.py") if path.is_file())
            if not paths:
                raise ValueError(f"no text in {library}: give some by --data")
        text = "".join(pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
                       for path in paths)
    known = sorted(set(text))
    number_of = {character: number for number, character in enumerate(known)}
    return torch.tensor([number_of[character] for character in text]), len(known)


class Characters(training_loop.Task):
    """Each character from those before it."""

    def __init__(self, options):
        self.options = options
        self.source = source(options.data)
        self.text, self.known = read_text(options.data)
        if len(self.text) < options.context + 2:
            raise ValueError(f"{len(self.text)} characters are fewer than a --context of "
                             f"{options.context}")

    def model(self):
        return CharGpt(self.known, self.options)

    def loss(self, model, step, part, parts):
        context = self.options.context
        starts = training_loop.drawn(self.options, step, part, parts, len(self.text) - context - 1)
        rows = torch.stack([self.text[start:start + context + 1] for start in starts])
        return functional.cross_entropy(model(rows[:, :-1]), rows[:, 1:].flatten())


if __name__ == "__main__":
    training_loop.main(Characters, options_parser())
