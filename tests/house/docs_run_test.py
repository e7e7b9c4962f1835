"""Shell blocks of the pages that follow a line <!-- runs --> are run unchanged: in an empty folder,
with Gyre installed, README's program as hello.c and the build folder as `build`. docs_run_test.py
ROOT BUILD_FOLDER MESON"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tree

MARK = "<!-- runs -->"
PATIENCE_S = 120
MIN_BLOCKS = 5  # fewer: the marks are not found any more


def blocks(text):
    """[(line, commands)] of the blocks behind marks; without commands where none follows."""
    lines, found = text.split("\n"), []
    for number, line in enumerate(lines):
        if line.strip() != MARK:
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        at = number + 1
        while at < len(lines) and not lines[at].strip():
            at += 1
        first, commands = at, []
        while at < len(lines) and (lines[at].startswith(indent) or not lines[at].strip()):
            commands.append(lines[at][len(indent):])
            at += 1
        found.append((first + 1, "\n".join(commands).strip()))
    return found


def run_block(commands, folder, environment):
    """What went wrong, or nothing."""
    if not commands:
        return f"no indented block follows {MARK}"
    try:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=folder,
                              env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE_S} s"
    return f"exit code {done.returncode}\n{done.stdout}" if done.returncode != 0 else ""


def failures(root, folder, environment):
    """(blocks, what went wrong)"""
    count, found = 0, []
    for page in (path for path in tree.files(root) if path.endswith(".md")):
        for line, commands in blocks(tree.read(root, page)):
            count += 1
            problem = run_block(commands, folder, environment)
            if problem:
                found.append(f"{page}:{line}: {commands}\n{problem}")
    return count, found


def installed(build, meson, folder):
    """The environment of a user who has installed Gyre, below `folder`."""
    stage = os.path.join(folder, "stage")
    subprocess.run([meson, "install", "-C", build, "--destdir", stage, "--no-rebuild", "--quiet"],
                   check=True, timeout=300, stdout=subprocess.DEVNULL)
    (header,) = glob.glob(f"{stage}/**/include/gyre/gyre.h", recursive=True)
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(header)))
    (library,) = glob.glob(f"{prefix}/lib*/**/libgyre.so.0", recursive=True)
    libraries = os.path.dirname(library)
    # The prefix is not where it was meant to be, so that pkg-config has to be told.
    words = os.path.join(folder, "words")
    os.mkdir(words)
    pkg_config = os.path.join(words, "pkg-config")
    with open(pkg_config, "w", encoding="utf-8") as script:
        script.write(f'#!/bin/sh\nexec {shutil.which("pkg-config")} '
                     f'--define-variable=prefix={prefix} "$@"\n')
    os.chmod(pkg_config, 0o755)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
    path = ":".join([words, f"{prefix}/bin", os.path.join(build, "bench"), os.environ["PATH"]])
    return {**clean, "PATH": path, "LD_LIBRARY_PATH": libraries,
            "PKG_CONFIG_PATH": f"{libraries}/pkgconfig"}


def main():
    root, build, meson = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        environment = installed(build, meson, folder)
        user = os.path.join(folder, "user")
        os.mkdir(user)
        os.symlink(build, os.path.join(user, "build"))
        with open(os.path.join(user, "hello.c"), "w", encoding="utf-8") as file:
            file.write(re.search(r"```c\n(.*?)```", tree.read(root, "README.md"), re.S).group(1))
        count, found = failures(root, user, environment)
    if count < MIN_BLOCKS:
        found.append(f"{count} blocks are marked {MARK}; there were {MIN_BLOCKS} or more")
    tree.report(found)


if __name__ == "__main__":
    main()
