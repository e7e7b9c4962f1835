"""A room's files open the namespaces that its row in ARCHITECTURE.md names, and those within them.
Another room's is opened to declare a type of it, and for nothing else. All code of a test, or
of a target of the fuzzers, lies in the namespace of its file's name, because the files of a program
are compiled as one."""
import re

import names_test
import rooms_test
import tree

OPENED = re.compile(r"\bnamespace\b\s*([\w:]*)\s*$")
DECLARATIONS = re.compile(r"(?:\s*(?:class|struct|enum class)\s+\w+(?:\s*:\s*\w+)?\s*;)+\s*")


def namespaces_table(text):
    """{room: its namespaces}: the column "namespace" of the table of rooms; None: any."""
    return {room: None if cell == "any" else re.findall(r"`([^`]+)`", cell)
            for room, cell in rooms_test.column(text, "namespace").items()}


def opened(text):
    """[(name in full, line, what is in it)] of the named namespaces that a bare text opens."""
    found, trail, begin = [], [], 0
    for match in re.finditer(r"[{};]", text):
        before, begin = text[begin:match.start()], match.end()
        if match.group() == "{":
            named = OPENED.search(before)
            trail.append((named.group(1) if named else "", match.end()))
        elif match.group() == "}" and trail:
            name, start = trail.pop()
            if name:
                whole = "::".join([outer for outer, _ in trail if outer] + [name])
                found.append((whole, text.count("\n", 0, start) + 1, text[start:match.start()]))
    return found


def owner(name, named):
    """The most particular of the named namespaces that is, or holds, the one of that name."""
    return max((one for one in named if f"{name}::".startswith(f"{one}::")), key=len, default=None)


def violations(root, table):
    named = {one for namespaces in table.values() for one in namespaces or []}
    unused = {(row, one) for row, namespaces in table.items() for one in namespaces or []}
    found = []
    for path in tree.sources(root):
        place = rooms_test.room_of(path, table)
        if place is None or table[place[0]] is None:
            continue
        row = place[0]
        for name, line, inside in opened(names_test.bare(tree.read(root, path))):
            unused.discard((row, name))
            if owner(name, named) not in table[row] and not DECLARATIONS.fullmatch(inside):
                found.append(f"{path}:{line}: namespace {name} is not for {row} (see the table in "
                             "ARCHITECTURE.md)")
    return found + [f"ARCHITECTURE.md: no file of {row} opens {name}"
                    for row, name in sorted(unused)]


def open_tests(root):
    found = []
    for path in tree.sources(root):
        test = re.fullmatch(r"tests/\w+/(\w+_(?:test|fuzz))\.cc", path)
        if test and not re.search(rf"^namespace {test.group(1)} {{$(?s:.)*^}}  // namespace "
                                  rf"{test.group(1)}\s*\Z", tree.read(root, path), re.M):
            found.append(f"{path}: its code does not lie in namespace {test.group(1)}")
    return found


if __name__ == "__main__":
    top = tree.root_from_arguments()
    rooms = namespaces_table(tree.read(top, "ARCHITECTURE.md"))
    missing = [] if rooms else ["ARCHITECTURE.md: its table of rooms has no column \"namespace\""]
    tree.report(missing + violations(top, rooms) + open_tests(top))
