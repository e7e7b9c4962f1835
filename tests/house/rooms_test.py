"""A room includes only what the table in ARCHITECTURE.md allows; no include goes in a circle."""
import os
import re

import tree

ALWAYS_ALLOWED = "lib/base/"
# Where people copy from: a file includes its neighbours by their bare names.
COPIED_FROM = "docs/examples/"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.M)


def column(text, name):
    """{room: its cell} of the column with that head in the table whose head starts "room". A room
    is a folder ("lib/plan/", "transports/*/")."""
    found, heads = {}, []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif cells[0] == "room":
            heads = cells
        elif name in heads and not set(cells[0]) <= set("-: "):
            found |= {room: cells[heads.index(name)] for room in re.findall(r"`([^`]+)`", cells[0])}
    return found


def rooms_table(text):
    """{room: what it may include}: folders and files, and lib/base/ unless the cell ends in
    "alone"; None: any."""
    table = {}
    for room, cell in column(text, "may include").items():
        allowed = re.findall(r"`([^`]+)`", cell)
        allowed += [] if cell.endswith("alone") else [ALWAYS_ALLOWED]
        table[room] = None if cell == "any" else allowed
    return table


def room_of(path, table):
    """The most particular row that holds the path: (row, the folder itself), or None."""
    for row in sorted(table, key=len, reverse=True):
        match = re.match(re.escape(row).replace(r"\*", "[^/]+"), path)
        if match:
            return row, match.group(0)
    return None


def resolve(path, included, paths):
    """The project's file that an include of `path` means, or None for one of the system's."""
    public = "include/" + included
    return quoted(path, included, paths) or (public if public in paths else None)


def quoted(path, included, paths):
    """The same of an include in quotes, which starts at the root."""
    beside = os.path.join(os.path.dirname(path), included)
    if path.startswith(COPIED_FROM) and beside in paths:
        return beside
    return included if included in paths else None


def allows(allowed, target):
    return any(re.match(re.escape(entry).replace(r"\*", "[^/]+") + ("$" if "." in entry else ""),
                        target) for entry in allowed)


def forbidden_includes(root, table, graph):
    found = []
    for path, targets in graph.items():
        place = room_of(path, table)
        if place is None:
            found.append(f"{path}: lies in no room of ARCHITECTURE.md's table")
            continue
        row, folder = place
        if table[row] is None:
            continue
        for target in targets:
            if target.startswith(folder) or allows(table[row], target):
                continue
            found.append(f'{path}: "{target}" is not for {row} (see the table in ARCHITECTURE.md)')
    return found


def empty_rooms(root, table):
    taken = {place[0] for place in (room_of(path, table) for path in tree.files(root)) if place}
    return [f"ARCHITECTURE.md: there is no file in {row}" for row in table if row not in taken]


def circles(graph):
    found, done = [], set()

    def visit(path, trail):
        if path in trail:
            found.append("include circle: " + " -> ".join(trail[trail.index(path):] + [path]))
        elif path not in done:
            for target in graph.get(path, []):
                visit(target, trail + [path])
            done.add(path)

    for path in graph:
        visit(path, [])
    return found


def include_graph(root):
    paths = set(tree.files(root))
    graph = {}
    for path in tree.sources(root):
        targets = [resolve(path, name, paths) for name in INCLUDE.findall(tree.read(root, path))]
        graph[path] = [target for target in targets if target]
    return graph


def quoted_strangers(root):
    """A quoted include names one of our files, from the root."""
    paths = set(tree.files(root))
    in_quotes = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
    return [f'{path}: "{name}" is no file of the project (includes start at the root)'
            for path in tree.sources(root) for name in in_quotes.findall(tree.read(root, path))
            if quoted(path, name, paths) is None]


if __name__ == "__main__":
    top = tree.root_from_arguments()
    rooms = rooms_table(tree.read(top, "ARCHITECTURE.md"))
    includes = include_graph(top)
    missing = [] if rooms else ["ARCHITECTURE.md: no rooms table"]
    tree.report(missing + forbidden_includes(top, rooms, includes) + empty_rooms(top, rooms) +
                circles(includes) + quoted_strangers(top))
