"""bench/training/char_gpt.py learns the same, on one rank or many, however they share the model,
and whoever starts it."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench/training/char_gpt.py"
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--steps", "6"]
LIMIT_S = 120


def losses(launcher, folder, *options):
    out = folder / "losses.json"
    done = subprocess.run(
        [sys.executable, *launcher, str(PROGRAM), *SMALL, "--json", str(out), *options],
        capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())["losses"]


def torchrun(ranks):
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


@pytest.fixture(scope="module", name="alone")
def fixture_alone(tmp_path_factory):
    """One rank with both ranks' examples."""
    curve = losses([], tmp_path_factory.mktemp("alone"), "--batch", "8")
    assert curve[-1] < curve[0]
    return curve


def test_two_ranks_by_torchrun_learn_as_one_does(alone, tmp_path):
    assert losses(torchrun(2), tmp_path, "--batch", "4") == pytest.approx(alone, abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["zero1", "fsdp"])
def test_ranks_that_share_the_model_learn_as_one_does(parallel, alone, tmp_path):
    found = losses(torchrun(2), tmp_path, "--batch", "4", "--parallel", parallel)
    assert found == pytest.approx(alone, abs=1e-4)


@pytest.mark.long
def test_the_old_launcher_starts_it_too(alone, tmp_path):
    launch = ["-m", "torch.distributed.launch", "--nproc-per-node", "2"]
    assert losses(launch, tmp_path, "--batch", "4") == pytest.approx(alone, abs=1e-4)


def test_a_text_that_is_too_short_is_refused(tmp_path):
    text = tmp_path / "text"
    text.write_text("short")
    done = subprocess.run([sys.executable, str(PROGRAM), "--data", str(text)], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert "5 characters are fewer than a --context of 96" in done.stderr
