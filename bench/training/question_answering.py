#!/usr/bin/env python3
"""Trains an encoder in the shape of BERT to find answers in texts, on one rank or many.

    question_answering.py                          made-up questions, one rank
    torchrun --nproc-per-node 2 question_answering.py --data train-v2.0.json --test dev-v2.0.json

n ranks with --batch B train like one rank with --batch nB. The head says where an answer starts and
where it ends; position 0 means that there is none. Data are in SQuAD's format. A
word is a run of letters and digits, or one other sign; the vocabulary is that of the data.
"""
import torch
from torch import nn
from torch.nn import functional

import question_data
import training_loop

NOT = -1e9  # the score of what cannot be an answer


def options_parser():
    parser = training_loop.parser_of(__doc__, batch=32, steps=800)
    parser.add_argument("--data", metavar="FILE",
                        help="questions to learn from, as SQuAD's JSON (default: made up)")
    parser.add_argument("--test", metavar="FILE",
                        help="questions for the test (default: a tenth of --data)")
    parser.add_argument("--layers", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--length", type=int, default=32, metavar="WORDS",
                        help="length of a question with a part of its text (default: %(default)s)")
    parser.add_argument("--words", type=int, default=20000, metavar="N",
                        help="most words in the vocabulary (default: %(default)s)")
    parser.add_argument("--answer-words", type=int, default=30, metavar="N",
                        help="most words in an answer (default: %(default)s)")
    parser.add_argument("--made-up", type=int, default=4000, metavar="N",
                        help="number of made-up questions without --data (default: %(default)s)")
    return parser


class Block(nn.Module):
    """Attention to all that is no padding, and a layer for each position; norms after the sums."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.take, self.give = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, there):
        batch, length, width = x.shape
        parts = self.take(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=there)
        x = self.norm1(x + self.give(seen.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.narrow(functional.gelu(self.widen(x))))


class SpanEncoder(nn.Module):
    """For each position: how much the answer starts, and ends, there."""

    def __init__(self, words, options):
        super().__init__()
        self.words = nn.Embedding(words, options.width)
        self.places = nn.Embedding(options.length, options.width)
        self.kinds = nn.Embedding(2, options.width)  # of the question, of the context
        self.norm = nn.LayerNorm(options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads)
                                    for _ in range(options.layers))
        self.span = nn.Linear(options.width, 2)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        breaks = (tokens == question_data.BREAK).long()
        kinds = (breaks.cumsum(1) - breaks > 0).long()
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1])) + self.kinds(kinds)
        x = self.norm(x)
        there = (tokens != question_data.PADDING)[:, None, None, :]
        for block in self.blocks:
            x = block(x, there)
        # A row for each position, as FSDP2 wants no view; in float32, as losses are.
        return self.span(x.flatten(0, 1)).float()


class Questions(training_loop.Task):
    """Where the answers lie."""

    def __init__(self, options):
        self.options, self.source = options, options.data or "made-up questions"
        if options.length < 8:
            raise ValueError("--length is at least 8")
        questions, self.tested = self.data(options)
        if not questions or not self.tested:
            raise ValueError(f"{len(questions)} questions to learn from and {len(self.tested)} for "
                             "the test are too few")
        self.vocabulary = question_data.Vocabulary(questions, options.words)
        learned = self.windows(questions)
        self.tokens = torch.tensor([window.tokens for window in learned])
        self.first = torch.tensor([window.first for window in learned])
        self.last = torch.tensor([window.last for window in learned])
        self.answerless = any(question.first is None for question in questions)

    @staticmethod
    def data(options):
        if options.data is None:
            made = question_data.made_up(options.seed, options.made_up)
            questions = question_data.questions_of(made)
        else:
            questions = question_data.read(options.data)
        if options.test is not None:
            return questions, question_data.read(options.test)
        kept = len(questions) // 10
        return questions[:len(questions) - kept], questions[len(questions) - kept:]

    def windows(self, questions):
        return [window for number, question in enumerate(questions)
                for window in question_data.windows_of(number, question, self.vocabulary,
                                                       self.options.length)]

    @staticmethod
    def starts_and_ends(model, tokens):
        return model(tokens).view(*tokens.shape, 2).unbind(2)

    def model(self):
        return SpanEncoder(len(self.vocabulary), self.options)

    def loss(self, model, step, part, parts):
        chosen = training_loop.drawn(self.options, step, part, parts, len(self.tokens))
        start, end = self.starts_and_ends(model, self.tokens[chosen])
        return (functional.cross_entropy(start, self.first[chosen]) +
                functional.cross_entropy(end, self.last[chosen])) / 2

    def best_span(self, window, start, end):
        """(its score, first and last word of the context) of the best answer in a window, and the
        score of there being none."""
        size, longest = window.end - window.begin, self.options.answer_words
        begin = window.place + window.begin
        sums = start[begin:begin + size, None] + end[None, begin:begin + size]
        allowed = torch.ones(size, size, dtype=torch.bool).triu().tril(longest - 1)
        best, number = sums.masked_fill(~allowed, NOT).flatten().max(0) if size else (NOT, 0)
        return [float(best), window.begin + int(number) // max(size, 1),
                window.begin + int(number) % max(size, 1), float(start[0] + end[0])]

    def found(self, model, job):
        """A row of best_span for each window of the test's questions, each found by one rank."""
        windows = self.windows(self.tested)
        rows = torch.zeros(len(windows), 4, dtype=torch.float64)
        share, at_once = training_loop.dealt(job, len(windows)), 64
        for begin in range(0, len(share), at_once):
            some = share[begin:begin + at_once]
            tokens = torch.tensor([windows[number].tokens for number, _ in some])
            starts, ends = self.starts_and_ends(model, tokens)
            for (number, counts), start, end in zip(some, starts, ends):
                if counts:
                    rows[number] = torch.tensor(self.best_span(windows[number], start, end))
        return windows, (job.mean(rows) * job.size).tolist()

    def answers(self, model, job):
        """A text for each question of the test; "" says that there is none."""
        chosen = [(NOT, 0, 0) for _ in self.tested]
        none = [-NOT for _ in self.tested]
        for window, (score, first, last, nothing) in zip(*self.found(model, job)):
            chosen[window.question] = max(chosen[window.question], (score, first, last))
            none[window.question] = min(none[window.question], nothing)
        answers = []
        for question, (score, first, last), nothing in zip(self.tested, chosen, none):
            if score == NOT or (self.answerless and nothing > score):
                answers.append("")
            else:
                _, begin, _ = question.context_words[round(first)]
                _, _, end = question.context_words[round(last)]
                answers.append(question.context[begin:end])
        return answers

    def scores(self, model, job):
        grades = [question_data.graded(answer, question)
                  for answer, question in zip(self.answers(model, job), self.tested)]
        exact, words = zip(*grades)
        return {"exact match": sum(exact) / len(grades), "F1": sum(words) / len(grades)}


if __name__ == "__main__":
    training_loop.main(Questions, options_parser())
