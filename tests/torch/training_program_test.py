"""The programs of bench/training learn the same on one rank or many, for every way of sharing the
model and every launcher. Most tests use ranks that are already running, since starting them takes
longer than training."""

import functools
import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from ranks import on_ranks

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "bench/training"
sys.path.insert(0, str(PROGRAMS))

import char_gpt  # noqa: E402  pylint: disable=wrong-import-position
import digits  # noqa: E402  pylint: disable=wrong-import-position
import question_answering  # noqa: E402  pylint: disable=wrong-import-position
import sharing  # noqa: E402  pylint: disable=wrong-import-position
import training_loop  # noqa: E402  pylint: disable=wrong-import-position

SMALL = {
    "char_gpt": ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32",
                 "--data", str(PROGRAMS / "char_gpt.py")],
    "digits": ["--channels", "4"],
    "question_answering": ["--layers", "1", "--width", "32", "--heads", "2", "--made-up", "100"],
}
PROGRAM = {"char_gpt": (char_gpt.options_parser, char_gpt.Characters),
           "digits": (digits.options_parser, digits.Digits),
           "question_answering": (question_answering.options_parser, question_answering.Questions)}
WAYS_OF_TWO = ["ddp", "zero1", "zero2", "zero3", "server"]
ROWS, STEPS = 8, 6  # examples of a step, on all ranks together
CLOSE = 1e-5
LIMIT_S = 120


def train(name, job, *words, steps=STEPS):
    """The losses, and the model."""
    parser, task_of = PROGRAM[name]
    options = parser().parse_args([*SMALL[name], "--steps", str(steps), *words])
    curve, model = training_loop.train(task_of(options), job, options)
    return [loss for _, loss in curve], model


# AdamW hardly minds a gradient that is too large by a factor, and would not show one.
EXACTING = ("--optimizer", "sgd", "--rate", "0.1")


@functools.cache
def alone(name, *words):
    losses, _ = train(name, training_loop.Job(), "--batch", str(ROWS), *words)
    assert losses[-1] < losses[0], "what learns nothing would show nothing"
    return losses


def learns_as_one_does(name, rank, size, parallel, accumulate=1, optimizer=EXACTING):
    losses, _ = train(name, training_loop.Job(rank, size), "--parallel", parallel, "--batch",
                      str(ROWS // size // accumulate), "--accumulate", str(accumulate), *optimizer)
    assert losses == pytest.approx(alone(name, *optimizer), abs=CLOSE)


@pytest.mark.parametrize("optimizer", [EXACTING, (), (*EXACTING, "--plain")],
                         ids=["sgd", "adamw", "sgd-plain"])
@pytest.mark.parametrize("parallel", WAYS_OF_TWO)
@on_ranks(2)
def test_two_ranks_learn_as_one_does(rank, size, parallel, optimizer):
    learns_as_one_does("char_gpt", rank, size, parallel, optimizer=optimizer)


@on_ranks(4)
def test_replicas_of_shards_learn_as_one_rank_does(rank, size):
    learns_as_one_does("char_gpt", rank, size, "hsdp")


@pytest.mark.parametrize("parallel", ["ddp", "zero3", "server"])
@on_ranks(2)
def test_gradients_of_two_passes_are_one_steps(rank, size, parallel):
    learns_as_one_does("char_gpt", rank, size, parallel, accumulate=2)


@pytest.mark.parametrize("name", sorted(set(PROGRAM) - {"char_gpt"}))
@pytest.mark.parametrize("parallel", WAYS_OF_TWO)
@on_ranks(2)
def test_the_other_programs_learn_so_too(rank, size, name, parallel):
    learns_as_one_does(name, rank, size, parallel)


@on_ranks(2)
def test_in_bfloat16_the_loss_is_near_float32s_and_not_it(rank, size):
    losses, _ = train("char_gpt", training_loop.Job(rank, size), "--parallel", "zero3",
                      "--batch", str(ROWS // size), "--dtype", "bfloat16")
    assert losses == pytest.approx(alone("char_gpt"), abs=0.05)
    assert losses != pytest.approx(alone("char_gpt"), abs=CLOSE)


@on_ranks(2)
def test_the_server_alone_has_the_optimizers_state(rank, size):
    parser, task_of = PROGRAM["char_gpt"]
    options = parser().parse_args([*SMALL["char_gpt"], "--parallel", "server"])
    shared = sharing.share_out(task_of(options), training_loop.Job(rank, size), options)
    assert (shared.optimizer.optimizer is not None) == (rank == 0)


@on_ranks(2)
def test_a_pass_that_is_not_the_last_sends_nothing(rank, size):
    parser, task_of = PROGRAM["digits"]
    task = task_of(parser().parse_args(SMALL["digits"]))
    shared = sharing.share_out(task, training_loop.Job(rank, size), task.options)
    with shared.unsynchronised():
        task.loss(shared.model, 0, rank, size).backward()
    mine = torch.cat([one.grad.flatten() for one in shared.model.parameters()])
    both = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(both, mine)
    assert not torch.allclose(*both), "each has its own examples' gradients"


@on_ranks(2)
def test_digits_are_told_apart(rank, size):
    """At least 97 % of those that the test keeps."""
    job = training_loop.Job(rank, size)
    parser, task_of = PROGRAM["digits"]
    task = task_of(parser().parse_args([]))
    _, model = training_loop.train(task, job, task.options)
    with torch.no_grad():
        scores = task.scores(model, job)
    assert scores["test accuracy"] >= 0.97
    assert scores == task.scores(model, training_loop.Job()), "all of it counts once"


@on_ranks(2)
def test_ranks_that_share_the_test_out_find_the_scores_of_one(rank, size):
    """Of a model in shards, whose passes are all ranks'; and of 10 windows more than all have."""
    name, words = "question_answering", ["--batch", "4", "--steps", str(STEPS)]
    parser, task_of = PROGRAM[name]
    words += ["--length", "16"]
    options = parser().parse_args([*SMALL[name], *words, "--parallel", "zero3"])
    task = task_of(options)
    task.tested = task.tested[:7]
    job = training_loop.Job(rank, size)
    _, model = training_loop.train(task, job, options)
    alone_options = parser().parse_args([*SMALL[name], *words, "--batch", "8"])
    _, other = training_loop.train(task_of(alone_options), training_loop.Job(), alone_options)
    with torch.no_grad():
        assert len(task.found(model, job)[0]) % size == 1
        assert task.answers(model, job) == task.answers(other, training_loop.Job())
        assert task.scores(model, job) == task.scores(other, training_loop.Job())


def start(launcher, name, folder, *words, limit_s=LIMIT_S):
    """What rank 0 wrote down, of a program that is started."""
    out = folder / "found.json"
    done = subprocess.run(
        [*launcher, str(PROGRAMS / f"{name}.py"), *SMALL[name], "--steps", str(STEPS), "--json",
         str(out), *words], capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


def torchrun(ranks):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
            str(ranks)]


def gyre_run(ranks):
    program = shutil.which("gyre")
    if program is None:
        pytest.skip("gyre is not in PATH")
    return [program, "run", "-n", str(ranks), sys.executable]


def old_launcher(ranks):
    return [sys.executable, "-m", "torch.distributed.launch", "--nproc-per-node", str(ranks)]


@pytest.mark.parametrize("name, launcher", [
    pytest.param("char_gpt", torchrun, id="char_gpt-torchrun"),
    pytest.param("char_gpt", old_launcher, id="char_gpt-launch", marks=pytest.mark.long),
    pytest.param("char_gpt", gyre_run, id="char_gpt-gyre", marks=pytest.mark.long),
    pytest.param("digits", gyre_run, id="digits-gyre", marks=pytest.mark.long),
    pytest.param("question_answering", torchrun, id="answering-torchrun", marks=pytest.mark.long),
])
def test_launchers_start_them(name, launcher, tmp_path):
    found = start(launcher(2), name, tmp_path, "--batch", str(ROWS // 2), *EXACTING)
    assert found["ranks"] == 2
    assert found["losses"] == pytest.approx(alone(name, *EXACTING), abs=CLOSE)


def test_the_bible_is_read_from_debians_package(tmp_path, monkeypatch):
    """Or what looks so: an index, and a stream of compress(1), here of letters alone."""
    text = "In the beginning"
    codes = sum(ord(letter) << 9 * place for place, letter in enumerate(text))
    packed = codes.to_bytes(9 * len(text) // 8, "little")
    monkeypatch.setattr(char_gpt, "BIBLE", tmp_path / "bible.data")
    char_gpt.BIBLE.write_bytes(b"EC02Compressed Data File\0\0\x1f\x9d\x90" + packed)
    assert char_gpt.bible() == text
    char_gpt.BIBLE.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not as bible-kjv-text has it"):
        char_gpt.bible()


@pytest.mark.long
def test_answers_are_found(tmp_path):
    """Also that there is none, which is the right answer to one in eight."""
    found = start(torchrun(2), "question_answering", tmp_path, "--layers", "2", "--width", "64",
                  "--heads", "4", "--made-up", "4000", "--batch", "16", "--steps", "1000",
                  "--until-loss", "0.1", limit_s=300)
    assert found["scores"]["exact match"] >= 0.95
    assert found["scores"]["F1"] >= found["scores"]["exact match"]


@pytest.mark.parametrize("words, complaint", [
    (["--data", "TEXT"], "5 characters are fewer than a --context of 96"),
    (["--parallel", "hsdp"], "needs a multiple of --replicas (2) ranks, and more than these: 1"),
    (["--dtype", "bfloat16"], "--dtype bfloat16 is for two ranks or more"),
])
def test_what_cannot_be_is_refused(words, complaint, tmp_path, monkeypatch, capsys):
    text = tmp_path / "text"
    text.write_text("short")
    words = [str(text) if word == "TEXT" else word for word in words]
    monkeypatch.setattr(sys, "argv", ["char_gpt.py", *words])
    with pytest.raises(SystemExit) as ended:
        training_loop.main(char_gpt.Characters, char_gpt.options_parser())
    assert complaint in str(ended.value)
    assert capsys.readouterr().out == ""
