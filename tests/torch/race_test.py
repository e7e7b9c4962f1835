"""bench/training/race.py: every contender learns the same in as many steps. A contender that does
not reach the loss has no result. Results can be drawn."""

import json
import pathlib
import subprocess
import sys

import pytest

RACE = pathlib.Path(__file__).resolve().parents[2] / "bench/training/race.py"
LIMIT_S = 240
QUICK = ["--programs", "digits", "--rounds", "1", "--floor-steps", "3", "--sharded", "zero1"]


def race(*words):
    return subprocess.run([sys.executable, str(RACE), *QUICK, *words], capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)


@pytest.mark.long
def test_all_ways_reach_the_loss_in_as_many_steps(tmp_path):
    sys.path.insert(0, str(RACE.parent))
    import picture
    out, drawn = tmp_path / "race.json", tmp_path / "race.svg"
    try:
        picture.find_python()
        plot = ["--plot", str(drawn)]
    except SystemExit:
        plot = []
    done = race("--digits-loss", "1.5", "--json", str(out), *plot)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())["races"]["digits"]["rows"]
    assert [row["way"] for row in rows] == ["1 rank", "2, server, gloo", "2, DDP, gloo",
                                            "2, DDP, Gyre", "2, zero1, Gyre"]
    assert {row["steps"] for row in rows} == {rows[0]["steps"]}
    assert all(row["curve_distance"] < 1e-4 for row in rows)
    assert all(row["losses"][-1] < 1.5 <= row["losses"][-2] for row in rows)
    if plot:
        assert all(row["way"] in drawn.read_text() for row in rows)


@pytest.mark.long
def test_a_loss_that_is_not_reached_is_an_error():
    done = race("--steps", "4")
    assert done.returncode == 1
    assert "digits, 1 rank: no loss of 0.1 in 4 steps" in done.stderr
