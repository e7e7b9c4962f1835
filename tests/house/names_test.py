"""A type's name stands in one room; names of limits begin with max_ and min_.

The parser of declarations is a heuristic: it follows braces, and tells namespaces and classes from
functions by the text before the brace. It ignores names inside functions.
"""
import collections
import re

import rooms_test
import tree

ROOMS = ("lib/", "kernels/", "transports/", "tools/gyre/", "tools/pytorch/", "bench/")
LIMITS_IN = ("lib/", "kernels/", "transports/")

# Names that may stand in several rooms, and why.
ALLOWED = {
    **dict.fromkeys(("Handle", "Key", "Kind", "Outcome", "Row", "Stage", "State"),
                    "nested in the class that they belong to, as the standard library has them"),
    "Options": "what a program's command line says, once for each program",
    **dict.fromkeys(("BFloat16", "Float16", "Float32", "Float64", "Float8E4M3", "Float8E5M2",
                     "FloatElement", "IntegerElement", "Stored", "Wrapping"),
                    "the same arithmetic, on the host, on GPUs and in what checks benchmarks"),
    **dict.fromkeys(("Incoming", "Outgoing"), "the two ends of a move, on the host and on GPUs"),
    "ElementType": "a template's parameter as its member",
}
ODD_LIMIT = re.compile(r"\b[a-z]\w*_(?:most|least)(?:_\w*)?\b|\b(?:most|least)_[a-z]\w*")

DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
ATTRIBUTE = (r"(?:alignas\s*\((?:[^()]|\([^()]*\))*\)\s*|\[\[[^\]]*\]\]\s*|"
             r"__attribute__\s*\(\(.*?\)\)\s*)*")
TYPE = re.compile(r"(?:^|[\s;{}>])(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+" +
                  ATTRIBUTE + r"((?:\w+\s*::\s*)*\w+)(?:\s*<[^{]*>)?(?:\s+final)?\s*"
                  r"(?::[^{;()]*)?$")
ALIAS = re.compile(r"(?:^|[\s>:])using\s+(\w+)\s*=[^;]*$")
NAMESPACE = re.compile(r"\bnamespace\b[\w:\s]*$|\bextern\s*(?:\"\"\s*)?$")


def bare(text):
    """The text without comments, literals and lines of the preprocessor; its lines stay."""
    text = tree.without_comments_and_texts(text)
    return DIRECTIVE.sub(lambda match: "\n" * match.group().count("\n"), text)


def types_of(text):
    """[(name, line)] of the types that a bare text defines in namespaces and classes."""
    found, outside, begin, line = [], [], 0, 1
    for match in re.finditer(r"[{};\n]", text):
        sign = match.group()
        if sign == "\n":
            line += 1
            continue
        before = text[begin:match.start()]
        begin = match.end()
        if sign == "}":
            if outside:
                outside.pop()
            continue
        named = (TYPE if sign == "{" else ALIAS).search(before)
        if named and all(outside):
            found.append((named.group(1).split("::")[-1].strip(), line))
        if sign == "{":
            outside.append(bool(named or NAMESPACE.search(before)))
    return found


def room_of(path, table):
    """The folder of the room that the path lies in, or None if it is in none that is looked at."""
    place = rooms_test.room_of(path, table)
    if place is None or not path.startswith(ROOMS):
        return None
    row, folder = place
    return next(room for room in ROOMS if path.startswith(room)) if row == "tools/" else folder


def homonyms(texts, table):
    places = collections.defaultdict(dict)
    for path, text in texts.items():
        room = room_of(path, table)
        if room is not None:
            for name, line in types_of(text):
                places[name].setdefault(room, f"{path}:{line}")
    return [f"{name} is a type of {len(rooms)} rooms: {', '.join(rooms.values())}"
            for name, rooms in sorted(places.items()) if len(rooms) > 1 and name not in ALLOWED]


def odd_limits(texts):
    return [f"{path}:{number}: {name}: a limit's name begins with max_ or min_"
            for path, text in texts.items() if path.startswith(LIMITS_IN)
            for number, line in enumerate(text.split("\n"), 1)
            for name in ODD_LIMIT.findall(line)]


if __name__ == "__main__":
    top = tree.root_from_arguments()
    rooms = rooms_test.rooms_table(tree.read(top, "ARCHITECTURE.md"))
    bare_texts = {path: bare(tree.read(top, path)) for path in tree.sources(top)
                  if path.startswith(ROOMS)}
    tree.report(homonyms(bare_texts, rooms) + odd_limits(bare_texts))
