"""Gyre's flight records in PyTorch's format: PyTorch's own analysis reads them, and names the rank
whose call differs or is missing."""

import importlib.util
import pickle
import re
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from ranks import run_apart

LIMIT_S = 60


def differ_in_a_group(rank, size):
    """Rank 2 calls something else than rank 1, in a group in which their numbers are 0 and 1."""
    pair = dist.new_group([1, 2])
    dist.all_reduce(torch.ones(8))
    dist.all_gather_into_tensor(torch.empty(4 * size), torch.ones(4))
    dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * size))
    dist.all_to_all_single(torch.empty(2 * size), torch.ones(2 * size))
    parts = [torch.ones(3) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.ones(3), parts, 0)
    dist.scatter(torch.empty(3), parts, 0)
    dist.barrier()
    if rank > 0:
        dist.all_reduce(torch.ones(5), group=pair)
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(9 + rank), group=pair)
    # Who aborts writes the records of all communicators.
    dist.group.WORLD._get_backend(torch.device("cpu")).abort()


def leave_one_out(rank, size):
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        return
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(6))


def export(records, folder):
    return subprocess.run([sys.executable, "-m", "gyre_torch.flight", *map(str, records), "--to",
                           str(folder)], capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)


def analyse(folder, *options):
    if importlib.util.find_spec("torch.distributed.flight_recorder") is None:
        pytest.skip("this PyTorch has no torchfrtrace")
    done = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace",
                           str(folder), "-p", "rank_", *options], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def record(monkeypatch, tmp_path, program, size):
    monkeypatch.setenv("GYRE_FLIGHT_FILE", str(tmp_path / "flight_%p"))
    assert run_apart(program, size, limit_s=LIMIT_S, fresh=True) == [("fine", 0)] * size
    return sorted(tmp_path.glob("flight_*"))


def test_pytorchs_analysis_names_who_differs(monkeypatch, tmp_path):
    records = record(monkeypatch, tmp_path, differ_in_a_group, 3)
    said = export(records, tmp_path / "trace")
    assert said.returncode == 0, said.stderr
    assert "3 of 3 ranks, " in said.stdout and "left out" not in said.stdout, said.stdout
    text = analyse(tmp_path / "trace")
    assert "expected ranks: {1, 2}" in text, text
    # Of two ranks that differ, it names the one whose file it has read later.
    assert re.search(r"Culprit rank [12]; Error type: SIZE_OR_SYNTAX_MISMATCH", text), text
    assert "[[10]]" in text and "[[11]]" in text and "missing ranks" not in text, text
    with open(tmp_path / "trace" / "rank_0", "rb") as file:
        dump = pickle.load(file)
    world = [entry for entry in dump["entries"] if entry["process_group"][1] == "0"]
    sizes = {entry["profiling_name"]: (entry["input_sizes"], entry["output_sizes"],
                                       entry["input_dtypes"]) for entry in world}
    assert sizes["nccl:_all_gather_base"] == ([[4]], [[12]], ["Float"])
    assert sizes["nccl:_reduce_scatter_base"] == ([[12]], [[4]], ["Float"])
    assert sizes["nccl:all_to_all"] == ([[6]], [[6]], ["Float"])


def test_pytorchs_analysis_names_who_is_missing(monkeypatch, tmp_path):
    records = record(monkeypatch, tmp_path, leave_one_out, 2)
    said = export(records, tmp_path / "trace")
    assert said.returncode == 0, said.stderr
    text = analyse(tmp_path / "trace")
    assert "Not all ranks joining collective" in text and "missing ranks: {1}" in text, text


def test_communicators_that_some_ranks_did_not_write_are_left_out(monkeypatch, tmp_path):
    """Else the analysis would miss their calls."""
    first, *others = record(monkeypatch, tmp_path, differ_in_a_group, 3)
    texts = [part for part in re.split(r"(?m)^(?={\"gyre_flights)", first.read_text()) if part]
    first.write_text(texts[0])
    said = export([first, *others], tmp_path / "trace")
    assert said.returncode == 0, said.stderr
    assert len(re.findall("is left out: not all of these ranks", said.stdout)) == len(texts) - 1
    assert "missing ranks" not in analyse(tmp_path / "trace")


def test_ranks_without_a_record_are_told(monkeypatch, tmp_path):
    records = record(monkeypatch, tmp_path, leave_one_out, 2)
    said = export(records[:1], tmp_path / "trace")
    assert said.returncode == 0, said.stderr
    assert "no record of rank " in said.stdout and "--allow-incomplete-ranks" in said.stdout
    analyse(tmp_path / "trace", "--allow-incomplete-ranks")


def test_what_is_no_record_is_refused(tmp_path):
    for content, why in (("", "is empty"), ('{"serial": 1}\n', "line 1, is no line of a flight"),
                         ("no JSON\n", "line 1, is no line"), ("[1]\n", "line 1, is no line")):
        (tmp_path / "record").write_text(content)
        said = export([tmp_path / "record"], tmp_path / "trace")
        assert said.returncode == 1 and why in said.stderr, said.stderr
    said = export([tmp_path / "none"], tmp_path / "trace")
    assert said.returncode == 1 and "none cannot be read: No such file" in said.stderr, said.stderr
