"""PyPI's frameworks train on Gyre as on gloo, with programs that know nothing of it: the same
losses, in no more time, and the error of a killed rank. `tools/dev frameworks` runs it."""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import pytest

FOLDER = pathlib.Path(__file__).resolve().parent
LIMIT_S = 300  # DeepSpeed compiles a part of itself at its first call
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# Of each: the package, and how its program is started.
PROGRAMS = {
    "accelerate": ("accelerate", [*TORCHRUN, "with_accelerate.py"]),
    "trainer": ("transformers", [*TORCHRUN, "with_trainer.py"]),
    "lightning": ("lightning", [sys.executable, "with_lightning.py"]),
    "deepspeed-zero1": ("deepspeed", [*TORCHRUN, "with_deepspeed.py", "--stage", "1"]),
    "deepspeed-zero2": ("deepspeed", [*TORCHRUN, "with_deepspeed.py", "--stage", "2"]),
    "deepspeed-zero3": ("deepspeed", [*TORCHRUN, "with_deepspeed.py", "--stage", "3"]),
    "ray": ("ray", [sys.executable, "with_ray.py"]),
}
CARRIES = "Gyre carries the process group"
ABSENT = pathlib.Path(sys.prefix, "absent")
# What pip says of a registry that it does not reach.
UNREACHED = re.compile("No matching distribution|Connection|Temporary failure|timed out|retries")


@pytest.fixture(params=PROGRAMS)
def program(request):
    package, command = PROGRAMS[request.param]
    if (ABSENT / package).exists():
        why = (ABSENT / package).read_text()
        if UNREACHED.search(why):
            pytest.skip(f"pip could not download {package}: {why[-300:]}")
        pytest.fail(f"pip could not install {package}: {why}")
    return command


def run(command, folder, instead_of, *words):
    """What it reports, or None, what is on the screen, and its exit code."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    variables = {**os.environ, "GYRE_TORCH_INSTEAD_OF": instead_of, "HF_HUB_OFFLINE": "1",
                 "DS_ACCELERATOR": "cpu", "RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": str(folder),
                 "PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{FOLDER}"}
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short:  # names of sockets
        done = subprocess.run([*command, "--report", str(report), *words], cwd=FOLDER,
                              env={**variables, "RAY_TMPDIR": short}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT_S, check=False)
    made = json.loads(report.read_text()) if report.exists() else None
    return made, done.stdout, done.returncode


def test_the_losses_are_those_of_gloo(program, tmp_path):
    by_gloo, said, code = run(program, tmp_path, "")
    assert code == 0 and by_gloo is not None, said
    assert CARRIES not in said
    by_gyre, said, code = run(program, tmp_path, "gloo")
    assert code == 0 and by_gyre is not None, said
    assert CARRIES in said
    assert by_gyre["losses"] == by_gloo["losses"]
    assert by_gyre["losses"][-1] < by_gyre["losses"][0]


def test_a_step_takes_no_longer_than_on_gloo(program, tmp_path, record_property, capsys):
    """The best of three runs each, as other programs may be busy: the median of a run's steps."""
    best = {}
    for _ in range(3):
        for instead_of in ("", "gloo"):
            made, said, code = run(program, tmp_path, instead_of, "--width", "256", "--steps", "20")
            assert code == 0, said
            median = statistics.median(made["seconds"][4:])
            best[instead_of] = min(median, best.get(instead_of, median))
    text = f"a step: gloo {1e3 * best['']:.1f} ms, Gyre {1e3 * best['gloo']:.1f} ms"
    record_property("steps", text)
    with capsys.disabled():
        print(f"\n{' '.join(program[-3:])}: {text}")
    assert best["gloo"] <= 1.2 * best[""], text


def test_the_error_of_a_killed_rank_reaches_the_screen(program, tmp_path):
    made, said, code = run(program, tmp_path, "gloo", "--die-at", "3")
    assert code != 0 and made is None, said
    assert re.search(r"gyre: rank 0 of 2.*rank 1", said), said
