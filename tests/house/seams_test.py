"""Rules that the table of rooms cannot show: who may ask the process for its services, in how many
places the code asks whether a communicator is on a GPU, how large lib/comm/communicator.h may be,
where Catch2 is included, and which standard header one of our compilers cannot read."""
import re

import tree

# What, of these folders, may be said in these places only.
ONLY_IN = [
    (re.compile(r"#[ \t]*include[ \t]*<catch2/"), "", ("tests/support/catch.h",),
     "tests include tests/support/catch.h, which serves both versions of Catch2"),
    (re.compile(r"\bCatch::"), "", ("tests/support/catch.h", "tests/support/session."),
     "what the versions of Catch2 name differently has a name in tests/support/catch.h"),
    (re.compile(r"#[ \t]*include[ \t]*<ranges>|\bstd::ranges::(?:equal_range|find_end|partition|"
                r"remove|remove_if|rotate|search|search_n|stable_partition|unique)\b"), "", (),
     "clang 14, which builds the fuzzers, cannot compile the views of libstdc++ 12, nor "
     "what gives a subrange; the algorithms of std do the same"),
    (re.compile(r"\bprocess\(\)\."), "lib/", ("lib/api/", "lib/comm/process.cc"),
     "process() is for lib/api: what a communicator needs is handed to it (lib/comm/services.h)"),
]
ASKS_FOR_DEVICE = re.compile(
    r"\boptions(?:\(\))?\.device (?:==|!=)|\.device\.get\(\)|\bon_device\(")
ASKING_ROOMS = ("lib/comm/", "lib/api/")
MAX_ASKED = 3
MIDDLE = "lib/comm/communicator.h"
MAX_LINES, MAX_OWN_INCLUDES = 200, 10


def strayed(root, paths):
    found = []
    for pattern, folder, places, why in ONLY_IN:
        for path in paths:
            if not path.startswith(folder):
                continue
            text = tree.without_comments_and_texts(tree.read(root, path))
            if pattern.search(text) and not path.startswith(places):
                found.append(f"{path}: {why}")
    return found


def device_questions(root, paths):
    asked = []
    for path in paths:
        if path.startswith(ASKING_ROOMS):
            text = tree.without_comments_and_texts(tree.read(root, path))
            asked += [f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
                      for match in ASKS_FOR_DEVICE.finditer(text)]
    if len(asked) <= MAX_ASKED:
        return []
    return [f"whether a communicator is on a GPU is asked in {len(asked)} places, at most "
            f"{MAX_ASKED} (give Backend a function): {', '.join(asked)}"]


def size_of_the_middle(root, paths):
    if MIDDLE not in paths:
        return []
    text = tree.read(root, MIDDLE)
    lines, own = text.count("\n"), len(re.findall(r'^#include "', text, re.M))
    found = []
    if lines > MAX_LINES:
        found.append(f"{MIDDLE}: {lines} lines; at most {MAX_LINES}")
    if own > MAX_OWN_INCLUDES:
        found.append(f"{MIDDLE}: includes {own} of our headers; at most {MAX_OWN_INCLUDES}")
    return found


def main():
    root = tree.root_from_arguments()
    paths = tree.sources(root)
    tree.report(strayed(root, paths) + device_questions(root, paths) +
                size_of_the_middle(root, paths))


main()
