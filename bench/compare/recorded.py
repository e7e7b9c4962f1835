"""What tools/dev compare has recorded in bench/results/compare.jsonl: the newest line of each row.
A run may record a part of the collectives, and another run the others; their lines stand side by
side if they are of the same kind: machine, ranks, memory, caches and type."""
import collections
import json
import os

from rounds import ROOT
from slow_rounds import geometric_mean

FILE = os.path.join(ROOT, "bench", "results", "compare.jsonl")
NAMES = {"all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter", "all_gather": "all-gather",
         "broadcast": "broadcast", "reduce": "reduce", "all_to_all": "all-to-all",
         "gather": "gather", "scatter": "scatter", "send_recv": "send + recv",
         "barrier": "barrier"}

Kind = collections.namedtuple("Kind", "machine transport ranks memory cold written type")


class NothingRecorded(Exception):
    """No line is of the kind that is asked for."""


def read(path=FILE):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def kind_of(line):
    return Kind(*(line[name] for name in Kind._fields))


def newest(lines, in_place=False, **wanted):
    """{kind: {collective: lines by size}} of those that have these values, each kind by its newest
    lines. A collective that has only the other place counts by that one."""
    found = {}
    for line in lines:
        kind = kind_of(line)
        if any(getattr(kind, name) != value for name, value in wanted.items()):
            continue
        places = found.setdefault(kind, {}).setdefault(line["collective"], {})
        places.setdefault(line["in_place"], {})[line["bytes"]] = line
    if not found:
        said = ", ".join(f"{name} {value}" for name, value in wanted.items())
        raise NothingRecorded(f"no line has {said}: tools/dev compare --record makes them")
    tables = {}
    for kind, collectives in found.items():
        tables[kind] = {}
        for name in sorted(collectives, key=list(NAMES).index):
            places = collectives[name]
            by_size = places.get(in_place) or next(iter(places.values()))
            tables[kind][name] = [by_size[size] for size in sorted(by_size)]
    return tables


def counted(lines):
    return [line for line in lines if line["ratio"] is not None and not line["disturbed"]]


def mean_of(lines):
    """The geometric mean of the ratios, or None."""
    ratios = [line["ratio"] for line in counted(lines)]
    return geometric_mean(ratios) if ratios else None


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"
