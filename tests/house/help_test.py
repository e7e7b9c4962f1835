"""Each program explains its usage: --help exits 0, prints to stdout, and names every option that
the program's sources declare. help_test.py ROOT PROGRAM=SOURCES...; SOURCES is a file or folder."""
import os
import re
import subprocess
import sys

import tree

# How options are declared (lib/command_line, CLI11), and texts that can be nothing else.
DECLARATION = re.compile(r'\badd_(?:option|flag)\w*\(\s*(?:\w+\s*,\s*)?"([^"]+)"|'
                         r'"(-\w,--[\w-]+)"')
PATIENCE_S = 20


def ask(arguments):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL)


def declared_options(root, sources):
    paths = [path for path in tree.sources(root)
             if path == sources or path.startswith(sources.rstrip("/") + "/")]
    names = set()
    for path in paths:
        for groups in DECLARATION.findall(tree.read(root, path)):
            declaration = "".join(groups)
            names.update(name.strip() for name in declaration.split(",") if name.strip()[0] == "-")
    return names


def subcommands(help_text):
    """The words at the beginning of indented lines before any option, as gyre lists them."""
    found = []
    for line in help_text.splitlines():
        match = re.match(r"  (\w+)\s{2,}\S", line)
        if match:
            found.append(match.group(1))
    return found


def check(root, program, sources):
    found, texts = [], []
    invocations = [[program]]
    first = ask([program, "--help"])
    if os.path.basename(program) == "gyre":
        invocations += [[program, word] for word in subcommands(first.stdout)]
    for invocation in invocations:
        shown = " ".join(invocation)
        done = ask([*invocation, "--help"])
        if done.returncode != 0 or not done.stdout:
            found.append(f"{shown} --help: exit code {done.returncode}, "
                         f"{len(done.stdout)} bytes on stdout\n{done.stderr}")
        texts.append(done.stdout)
        # "gyre plan memory: ..." in the help of gyre plan.
        below = re.findall(rf"^gyre {invocation[-1]} (\w+): ", done.stdout, re.M)
        invocations += [[*invocation, word] for word in below]
        wrong = ask([*invocation, "--no-such-option-at-all"])
        if wrong.returncode != 2:
            found.append(f"{shown} --no-such-option-at-all: exit code {wrong.returncode}, not 2")
    help_text = "\n".join(texts)
    found += [f"{program} --help does not name {name}"
              for name in sorted(declared_options(root, sources))
              if not re.search(r"(?<![\w-])" + re.escape(name) + r"(?![\w-])", help_text)]
    return found


def check_script(root):
    """tools/dev names each of its commands."""
    help_text = ask([os.path.join(root, "tools/dev"), "--help"]).stdout
    functions = re.findall(r"^command_(\w+)\(\)", tree.read(root, "tools/dev"), re.M)
    functions = [name.replace("_", "-") for name in functions]
    return [f"tools/dev --help does not name {name}" for name in functions
            if not re.search(rf"^  {name}\b", help_text, re.M)]


if __name__ == "__main__":
    top = sys.argv[1]
    violations = check_script(top)
    for pair in sys.argv[2:]:
        violations += check(top, *pair.split("=", 1))
    tree.report(violations)
