#!/usr/bin/env python3
"""Writes Gyre's flight records in the format of PyTorch's flight recorder, for torchfrtrace.

  gyre why --dump /tmp/flights                      on each host, of a job that hangs; or
  GYRE_FLIGHT_FILE=/tmp/flights_%h_%p ...           written by each rank of a job that failed
  python -m gyre_torch.flight /tmp/flights* --to /tmp/trace
  torchfrtrace /tmp/trace                           (python -m torch.distributed.flight_recorder...)

Ranks are numbered as in the largest communicator. Sends and receives are left out: PyTorch's
analysis would take each for a call that all ranks of the group have to make. `gyre why` names the
culprit of a hang in any case; this is for tools that know PyTorch's files.
"""

import argparse
import json
import pathlib
import pickle
import sys

VERSION = "2.10"  # of PyTorch's format: c10d's FlightRecorder.hpp
PREFIX = "rank_"  # of the files' names; the rank follows
# The analysis refuses names that it does not know, "gyre" among them.
BACKEND = "nccl"
SPLIT = "gyreCommSplit"
# By function: PyTorch's name, and how many times `count` a rank gives and gets; "n" are all ranks.
CALLS = {
    "gyreAllReduce": ("all_reduce", 1, 1),
    "gyreReduceScatter": ("_reduce_scatter_base", "n", 1),
    "gyreReduceScatterv": ("reduce_scatter_v", 1, 1),
    "gyreAllGather": ("_all_gather_base", 1, "n"),
    "gyreAllGatherv": ("all_gather_v", 1, 1),
    "gyreBroadcast": ("broadcast", 1, 1),
    "gyreReduce": ("reduce", 1, 1),
    "gyreAlltoAll": ("all_to_all", "n", "n"),
    "gyreAlltoAllv": ("all_to_all_v_single", 1, 1),
    "gyreGather": ("gather", 1, "n"),
    "gyreScatter": ("scatter", "n", 1),
    "gyreBarrier": ("barrier", 0, 0),
    SPLIT: ("split", 0, 0),
}
DTYPES = {"int8": "Char", "uint8": "Byte", "int32": "Int", "uint32": "UInt32", "int64": "Long",
          "uint64": "UInt64", "half": "Half", "float": "Float", "double": "Double",
          "bfloat16": "BFloat16", "f8e4m3": "Float8_e4m3fn", "f8e5m2": "Float8_e5m2"}


class Unusable(Exception):
    """The files say too little, or are none of Gyre's."""


class RankText:
    """What one rank of one communicator wrote."""

    def __init__(self, head):
        self.head = head
        self.flights = []
        self.process = (head["host"], head["pid"])
        self.rank, self.size = head["rank"], head["size"]
        self.to_wall_ns = head["wall_ns"] - head["now_ns"]

    @property
    def group(self):
        return self.head["communicator"], self.head["label"] or "undefined"

    def processes(self):
        """By rank; empty for a communicator of which too many ranks would have been listed."""
        return [(peer["host"], peer["pid"]) for peer in self.head["peers"]]


def read_file(path):
    texts = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    read_line(json.loads(line), texts)
                except (ValueError, KeyError, TypeError) as error:
                    raise Unusable(f"{path}, line {number}, is no line of a flight record: "
                                   f"{error}") from error
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from error
    if not texts:
        raise Unusable(f"{path} is empty: `gyre why --dump FILE` and GYRE_FLIGHT_FILE write "
                       "flight records")
    return texts


def read_line(line, texts):
    if "gyre_flights" in line:
        texts.append(RankText(line))
    elif not texts:
        raise ValueError("it does not begin with the line of a rank")
    elif "function" in line:
        texts[-1].flights.append(line)


def newest(texts):
    """A file may hold several texts of one rank: a later one has all that an earlier one has."""
    found = {}
    for text in texts:
        key = text.group, text.rank
        if key not in found or found[key].head["wall_ns"] < text.head["wall_ns"]:
            found[key] = text
    return list(found.values())


def number_processes(texts):
    """The rank of each process in the largest communicator; in the first of several."""
    largest = max(texts, key=lambda text: text.size)
    listed = largest.processes()
    if not listed:  # 4096 ranks are listed at most
        listed = {text.rank: text.process for text in texts if text.group == largest.group}
        return {process: rank for rank, process in listed.items()}, largest.size
    if len(set(listed)) < len(listed):
        raise Unusable("several ranks are in one process, and PyTorch's format knows one: use "
                       "gyre why --trace")
    return {process: rank for rank, process in enumerate(listed)}, largest.size


def ranks_of(text, numbers, size):
    processes = text.processes()
    if not processes and text.size == size:
        return list(range(size))
    strangers = [process for process in processes if process not in numbers]
    if strangers or not processes:
        raise Unusable(f"communicator {text.group[0]} of {text.size} ranks has processes that the "
                       f"largest one, of {size}, does not tell")
    return [numbers[process] for process in processes]


def sizes_of(flight, size):
    name, *parts = CALLS[flight["function"]]
    return name, *([flight["count"] * (size if part == "n" else part)] for part in parts)


def entry_of(text, flight, begun_ns):
    name, given, gotten = sizes_of(flight, text.size)
    dtype = DTYPES.get(flight["type"], flight["type"])
    done = flight["end_ns"] is not None and flight["outcome"] == 0
    entry = {
        "frames": [], "pg_id": 0, "process_group": text.group,
        "collective_seq_id": flight["sequence"], "p2p_seq_id": 0, "op_id": flight["serial"],
        "profiling_name": f"{BACKEND}:{name}", "is_p2p": False,
        "input_sizes": [given], "input_dtypes": [dtype],
        "output_sizes": [gotten], "output_dtypes": [dtype],
        "state": "completed" if done else "started", "retired": done, "timeout_ms": 0,
        "time_created_ns": text.to_wall_ns + begun_ns,
        "time_discovered_started_ns": text.to_wall_ns + begun_ns,
        "time_discovered_completed_ns": text.to_wall_ns + flight["end_ns"] if done else None,
    }
    if flight["start_ns"] is not None and done:
        entry["duration_ms"] = (flight["end_ns"] - flight["start_ns"]) / 1e6
    return entry


def entries_of(text, first):
    """Short operations in a row share times: one without its own has that of those before it."""
    begun_ns = 0
    for flight in sorted(text.flights, key=lambda flight: flight["serial"]):
        begun_ns = max(begun_ns, flight["start_ns"] or flight["end_ns"] or 0)
        if flight["function"] in CALLS and flight["sequence"] >= first:
            yield entry_of(text, flight, begun_ns)


def first_numbers(texts):
    """By communicator: from which number on all ranks still have their calls."""
    firsts = {}
    for text in texts:
        numbers = [flight["sequence"] for flight in text.flights if flight["function"] in CALLS]
        firsts[text.group] = max(firsts.get(text.group, 0), min(numbers, default=0))
    return firsts


def half_known(texts):
    """Communicators of which some process that has records of others has none: in the analysis its
    calls would be missing ones."""
    processes = {text.process for text in texts}
    groups = {}
    for text in texts:
        groups.setdefault(text.group, []).append(text)
    return {group for group, known in groups.items()
            if set(known[0].processes()) & processes - {text.process for text in known}}


def export(texts):
    """PyTorch's dump of each rank, how many ranks there are, and what is left out."""
    texts = newest(texts)
    numbers, size = number_processes(texts)
    unknown = half_known(texts)
    firsts = first_numbers(texts)
    dumps = {}
    for text in texts:
        if text.group in unknown:
            continue
        ranks = ranks_of(text, numbers, size)
        dump = dumps.setdefault(ranks[text.rank], {"version": VERSION, "pg_config": {},
                                                   "pg_status": {}, "entries": []})
        name, label = text.group
        dump["pg_config"][name] = {"name": name, "desc": label, "ranks": str(ranks)}
        dump["entries"] += entries_of(text, firsts[text.group])
    for dump in dumps.values():
        dump["entries"].sort(key=lambda entry: entry["time_created_ns"])
        for number, entry in enumerate(dump["entries"]):
            entry["record_id"] = number
    return dumps, size, unknown


def write(dumps, folder):
    folder.mkdir(parents=True, exist_ok=True)
    old = [path.name for path in folder.iterdir()]
    if old:
        raise Unusable(f"{folder} is not empty ({old[0]}), and torchfrtrace reads all files of a "
                       "folder: name another one")
    for rank, dump in dumps.items():
        with open(folder / f"{PREFIX}{rank}", "wb") as file:
            pickle.dump(dump, file)


def main():
    usage, explanation = __doc__.split("\n", 1)
    parser = argparse.ArgumentParser(prog="python -m gyre_torch.flight", description=usage,
                                     epilog=explanation,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="flight records of Gyre")
    parser.add_argument("--to", required=True, type=pathlib.Path, metavar="FOLDER",
                        help="for one file a rank; it is made, or has to be empty")
    options = parser.parse_args()
    try:
        texts = [text for path in options.files for text in read_file(path)]
        dumps, size, unknown = export(texts)
        write(dumps, options.to)
    except Unusable as error:
        sys.exit(f"gyre_torch.flight: {error}")
    except OSError as error:
        sys.exit(f"gyre_torch.flight: {error.filename}: {error.strerror}")
    for name, label in sorted(unknown):
        print(f"communicator {name} ({label}) is left out: not all of these ranks have its record")
    missing = sorted(set(range(size)) - set(dumps))
    left_out = sum(flight["function"] not in CALLS for text in texts for flight in text.flights)
    print(f"{len(dumps)} of {size} ranks, "
          f"{sum(len(dump['entries']) for dump in dumps.values())} collective calls"
          + (f"; {left_out} calls of sends and receives are left out" if left_out else ""))
    if missing:
        print(f"no record of rank {', '.join(map(str, missing))}: pass --allow-incomplete-ranks")
    print(f"  torchfrtrace {options.to} -p {PREFIX}"
          + (" --allow-incomplete-ranks" if missing else ""))


if __name__ == "__main__":
    main()
