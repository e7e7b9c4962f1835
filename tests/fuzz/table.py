"""The tables of README.md, as table_test.py and coverage.py read them."""
import collections
import os
import re

Parser = collections.namedtuple("Parser", "path functions target")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def rows():
    """[cells] of the lines of all tables."""
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not set(row[0]) <= set("-: ") or not row[0]]


def parsers():
    """One Parser a row; no functions: the whole file."""
    found = []
    for row in rows():
        words = re.findall(r"`([^`]+)`", row[1]) if len(row) == 3 else []
        target = re.fullmatch(r"`(\w+)`", row[2]) if words else None
        if target:
            found.append(Parser(words[0], words[1:], target.group(1)))
    return found


def other_readers():
    """The files of the second table."""
    return [row[0].strip("`") for row in rows() if len(row) == 2 and row[0].startswith("`")]
