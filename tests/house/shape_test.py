"""Lengths of files, functions and lines; names of files; the opening comment of a file; the top
level of the tree."""
import ast
import re

import tree

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_LINE_COLUMNS = 100

WORDS_NOT_USED = {"util", "utils", "misc", "common", "helper", "helpers", "manager", "managers",
                  "handler", "handlers", "context", "contexts", "task", "tasks"}
TOP_LEVEL = {"meson.build", "meson_options.txt", "include", "lib", "kernels", "transports", "tools",
             "tests", "bench", "docs", "README.md", "LICENSE", "ARCHITECTURE.md", "CONTRIBUTING.md",
             "CHANGELOG.md"}
TEXT_ENDINGS = tree.SOURCE_ENDINGS + (".py", ".build", ".md", ".sh")
# Split, so that this file does not hold the words itself.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) +
                        r")\b")
# What opens a block that is no function, at the level of namespaces and types.
OTHER_BLOCKS = re.compile(r"\b(namespace|class|struct|union|enum|concept)\b[^()]*$|=\s*$|"
                          r'\bextern\s*""\s*$')


def function_lengths(source):
    """[(first line, lines)] of the functions of a C++ file. A heuristic: a block is a function if
    what stands before it has parentheses and opens no namespace or type."""
    text = "\n".join("" if line.lstrip().startswith("#") or line.endswith("\\") else line
                     for line in tree.without_comments_and_texts(source).split("\n"))
    found, stack = [], []  # stack: first line of a function, or None
    header_from, in_parentheses = 0, 0
    for place, character in enumerate(text):
        in_parentheses += {"(": 1, ")": -1}.get(character, 0)
        if character == "{":
            header = text[header_from:place]
            inside = any(first is not None for first in stack) or in_parentheses > 0
            is_function = not inside and ")" in header and not OTHER_BLOCKS.search(header)
            first = header_from + len(header) - len(header.lstrip())
            stack.append(text.count("\n", 0, first) + 1 if is_function else None)
        elif character == "}" and stack:
            first = stack.pop()
            if first is not None:
                found.append((first, text.count("\n", 0, place) + 2 - first))
        if character in "{};" and in_parentheses <= 0:
            header_from = place + 1
    return found


def python_function_lengths(source):
    return [(node.lineno, node.end_lineno + 1 - node.lineno)
            for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]


def shell_function_lengths(source):
    found, first = [], None
    for number, line in enumerate(source.split("\n"), 1):
        if re.match(r"^\w+\(\) \{", line):
            first = number
        elif line == "}" and first is not None:
            found.append((first, number + 1 - first))
            first = None
    return found


def too_long(path, source):
    found = []
    lines = source.split("\n")
    if not path.endswith(".md"):
        if len(lines) - 1 > MAX_FILE_LINES:
            found.append(f"{path}: {len(lines) - 1} lines; at most {MAX_FILE_LINES}")
        found += [f"{path}:{number}: {len(line)} columns; at most {MAX_LINE_COLUMNS}"
                  for number, line in enumerate(lines, 1) if len(line) > MAX_LINE_COLUMNS]
    if path.endswith(tree.SOURCE_ENDINGS):
        functions = function_lengths(source)
    elif path.endswith(".py"):
        functions = python_function_lengths(source)
    elif source.startswith("#!"):
        functions = shell_function_lengths(source)
    else:
        functions = []
    return found + [f"{path}:{first}: a function of {count} lines; at most {MAX_FUNCTION_LINES}"
                    for first, count in functions if count > MAX_FUNCTION_LINES]


# Public headers have a guard that C compilers know; what is precompiled is included by nobody.
UNGUARDED = ("include/", "tests/support/precompiled/")


def badly_opened(path, source, paths):
    """A header, and a source file without a header of its own, opens by saying what it is."""
    found = []
    if path.endswith(tree.HEADER_ENDINGS) and "#pragma once" not in source and \
            not path.startswith(UNGUARDED):
        found.append(f"{path}: no #pragma once")
    own_header = re.sub(r"\.\w+$", ".h", path)
    needs = path.endswith(tree.HEADER_ENDINGS) or own_header not in paths
    if needs and not re.match(r"(//|/\*)", source):
        found.append(f"{path}: does not open with a comment that says what it is")
    return found


def badly_named(path):
    words = set(re.split(r"[_./-]", path.lower()))
    return [f"{path}: the word \"{word}\" says nothing" for word in words & WORDS_NOT_USED]


def out_of_place(path):
    top = path.split("/")[0]
    allowed = top in TOP_LEVEL or top.startswith(".")
    return [] if allowed else [f"{path}: \"{top}\" does not belong at the top level"]


def unfinished(path, source):
    return [f"{path}:{number}: marked as unfinished"
            for number, line in enumerate(source.split("\n"), 1) if UNFINISHED.search(line)]


def violations(root):
    found = []
    paths = tree.files(root)
    for path in paths:
        found += badly_named(path) + out_of_place(path)
        script = path in ("tools/dev", ".ci/run") or path.endswith(".sh")
        if not script and not path.endswith(TEXT_ENDINGS):
            continue
        source = tree.read(root, path)
        found += too_long(path, source) + unfinished(path, source)
        if path.endswith(tree.SOURCE_ENDINGS):
            found += badly_opened(path, source, set(paths))
    return found


if __name__ == "__main__":
    tree.report(violations(tree.root_from_arguments()))
