"""Every header compiles alone; public ones as strict C99 and as C++11. A header that a source file
includes before anything else is compiled alone where each file is (`tools/dev lint`), and so is the
first include of such a header. This test compiles the others, and several in one run of the
compiler where each includes all before it: none of them then sees more than alone.
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
PUBLIC = "include/"
# What other compilers or other headers check: nvcc, and a Python's PyTorch.
BUILT_ELSEWHERE = ("kernels/cuda/", "tools/pytorch/")
# A header of an optional dependency. What needs it is left out where it is not there.
OPTIONAL = "infiniband/verbs.h"


def compiler(variable, usual):
    return shlex.split(os.environ.get(variable, usual))


def commands(header):
    if header.startswith(PUBLIC):
        return [compiler("CC", "cc") + C99, compiler("CXX", "c++") + CXX11]
    return [compiler("CXX", "c++") + CXX20]


def opening_includes(root, path):
    """The files that it includes before anything else, whatever is defined."""
    found = []
    for line in tree.read(root, path).splitlines():
        include = re.match(r'#include ["<](\S+)[">]', line)
        if include:
            found.append(include.group(1))
        elif line.strip() and not line.startswith(("//", "#pragma once")):
            break
    return found


def proven_by_build(root, paths):
    """The headers that a source file, or such a header, includes before anything else."""
    proven = set()
    for source in (path for path in paths if path.endswith(".cc")):
        path = source
        while True:
            header = next(iter(opening_includes(root, path)), None)
            if header not in paths or header in proven:
                break
            proven.add(header)
            path = header
    return proven


def chains(root, headers, paths):
    """The headers in lists. Each header includes, itself or through others, all before it."""
    included = {}

    def closure(header):
        if header not in included:
            included[header] = set()
            for other in opening_includes(root, header):
                if other in paths:
                    included[header] |= {other} | closure(other)
        return included[header]

    left = sorted(headers, key=lambda header: -len(closure(header)))
    lists = []
    while left:
        chain = [left.pop(0)]
        for header in list(left):
            if header in closure(chain[0]):
                chain.insert(0, header)
                left.remove(header)
        lists.append(chain)
    return lists


def compile_alone(root, headers):
    """What the compiler says of the headers, one after the other; empty if nothing."""
    included = [word for header in headers for word in ("-include", header)]
    said = ""
    for command in commands(headers[0]):
        done = subprocess.run([*command, *WARNINGS, "-I.", "-Iinclude", *included, "/dev/null"],
                              cwd=root, capture_output=True, text=True)
        if done.returncode != 0 and len(headers) > 1:
            return "".join(compile_alone(root, [header]) for header in headers)
        if done.returncode != 0 and f"{OPTIONAL}: No such file" not in done.stderr:
            said += f"{headers[0]}: does not compile alone ({command[1]})\n{done.stderr}"
    return said


if __name__ == "__main__":
    top = tree.root_from_arguments()
    sources = set(tree.sources(top))
    proven = proven_by_build(top, sources)
    headers = [path for path in sorted(sources - proven)
               if path.endswith(".h") and not path.startswith(BUILT_ELSEWHERE)]
    private = [header for header in headers if not header.startswith(PUBLIC)]
    runs = chains(top, private, sources) + [[h] for h in headers if h.startswith(PUBLIC)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda headers: compile_alone(top, headers), runs))
    print(f"{len(headers)} headers compiled alone, in {len(runs)} runs")
    tree.report([said for said in results if said])
