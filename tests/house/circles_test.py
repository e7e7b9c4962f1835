"""Source files have no circular dependencies: not by headers, and not by the includes of .cc files.

A unit is NAME.h with NAME.cc. A .cc without a header of its own belongs to the unit whose class it
defines functions of, if there is one (job_tree.cc to job); otherwise it is a unit by itself. A unit
depends on another one if any of its files includes that one's header."""
import os
import re

import tree

FOLDERS = ("lib/", "kernels/", "transports/", "tools/gyre/", "bench/")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
CLASS = re.compile(r"^(?:class|struct) (\w+)[^;]*\{", re.M)
MEMBER = re.compile(r"^(?! )(?:[\w:<>,&*\[\] ]+[ &*])?(\w+)::~?\w+\(", re.M)

# Circles that are allowed to stand: the units, and why. It only becomes shorter.
STANDING = {}


def stem(path):
    return os.path.splitext(path)[0]


def included_headers(text, headers):
    return [name for name in INCLUDE.findall(text) if name in headers]


def unit_of_body(path, text, headers, classes):
    """Of a .cc without a header of its own."""
    members = set(MEMBER.findall(tree.without_comments_and_texts(text)))
    owners = [header for header in included_headers(text, headers) if classes[header] & members]
    return stem(owners[0]) if owners else stem(path)


def units(root):
    """{path: unit}"""
    paths = [path for path in tree.sources(root) if path.startswith(FOLDERS)]
    headers = {path for path in paths if path.endswith(tree.HEADER_ENDINGS)}
    texts = {path: tree.read(root, path) for path in paths}
    classes = {path: set(CLASS.findall(texts[path])) for path in headers}
    stems = {stem(path) for path in headers}
    return {path: stem(path) if stem(path) in stems else
            unit_of_body(path, texts[path], headers, classes) for path in paths}, texts, headers


def reach(root):
    """{unit: {unit that it leads to: one of its files that does}}"""
    unit_of, texts, headers = units(root)
    graph = {unit: {} for unit in unit_of.values()}
    for path, unit in unit_of.items():
        for header in included_headers(texts[path], headers):
            if unit_of[header] != unit:
                graph[unit].setdefault(unit_of[header], path)
    return graph


def circles(graph):
    """Sets of units each of which leads to all others of its set (Tarjan's components)."""
    number, lowest, open_units, found = {}, {}, [], []

    def visit(unit):
        number[unit] = lowest[unit] = len(number)
        open_units.append(unit)
        for target in graph[unit]:
            if target not in number:
                visit(target)
            if target in open_units:
                lowest[unit] = min(lowest[unit], lowest[target])
        if lowest[unit] == number[unit]:
            first = open_units.index(unit)
            component = open_units[first:]
            del open_units[first:]
            if len(component) > 1:
                found.append(frozenset(component))

    for unit in graph:
        if unit not in number:
            visit(unit)
    return found


def described(graph, circle):
    ways = [f"{path} to {target}" for unit in sorted(circle)
            for target, path in sorted(graph[unit].items()) if target in circle]
    return f"circle of {', '.join(sorted(circle))}: " + "; ".join(ways)


if __name__ == "__main__":
    ways = reach(tree.root_from_arguments())
    seen = circles(ways)
    violations = [described(ways, circle) for circle in seen if circle not in STANDING]
    violations += [f"no circle any more, strike it from the list: {', '.join(sorted(circle))}"
                   for circle in STANDING if circle not in seen]
    tree.report(violations)
