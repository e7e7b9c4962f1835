"""Every header compiles alone; public ones as strict C99 and as C++11. A header that is the first
include of its own source file was already compiled by the build; this test compiles the others.
headers_test.py [ROOT]; the compilers are CC and CXX, else cc and c++."""
import concurrent.futures
import os
import re
import shlex
import subprocess

import tree

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
C99 = ["-std=c99", "-x", "c"]
CXX11 = ["-std=c++11", "-x", "c++"]
# -Wno-psabi: vectors wider than the default target's pass between inlined functions only.
CXX20 = ["-std=c++20", "-x", "c++", "-Wno-psabi", "-D_GNU_SOURCE"]
# What other compilers or other headers check: nvcc, and a Python's PyTorch.
BUILT_ELSEWHERE = ("kernels/cuda/", "tools/pytorch/")
# A header of an optional dependency. What needs it is left out where it is not there.
OPTIONAL = "infiniband/verbs.h"


def compiler(variable, usual):
    return shlex.split(os.environ.get(variable, usual))


def commands(header):
    if header.startswith("include/"):
        return [compiler("CC", "cc") + C99, compiler("CXX", "c++") + CXX11]
    return [compiler("CXX", "c++") + CXX20]


def proven_by_build(root, header, paths):
    """Does its own source file include it before anything else?"""
    source = re.sub(r"\.h$", ".cc", header)
    if source not in paths:
        return False
    first = re.search(r"^[ \t]*#[ \t]*include[ \t]*(\S+)", tree.read(root, source), re.M)
    return first is not None and first.group(1) == f'"{header}"'


def compile_alone(root, header):
    """What the compiler says; empty if nothing."""
    said = ""
    for command in commands(header):
        done = subprocess.run([*command, *WARNINGS, "-I.", "-Iinclude", "-include", header,
                               "/dev/null"], cwd=root, capture_output=True, text=True)
        if done.returncode != 0 and f"{OPTIONAL}: No such file" not in done.stderr:
            said += f"{header}: does not compile alone ({command[1]})\n{done.stderr}"
    return said


if __name__ == "__main__":
    top = tree.root_from_arguments()
    sources = tree.sources(top)
    headers = [path for path in sources
               if path.endswith(".h") and not path.startswith(BUILT_ELSEWHERE) and
               not proven_by_build(top, path, set(sources))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda header: compile_alone(top, header), headers))
    print(f"{len(headers)} headers compiled alone")
    tree.report([said for said in results if said])
