"""Every header compiles alone; the public ones also as strict C99 and by themselves as C++11.
headers_test.py [ROOT]; the compilers are CC and CXX, else cc and c++."""
import concurrent.futures
import os
import shlex
import subprocess

import tree

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
C99 = ["-std=c99", "-x", "c"]
CXX11 = ["-std=c++11", "-x", "c++"]
# -Wno-psabi: vectors wider than the default target's pass between inlined functions only.
CXX20 = ["-std=c++20", "-x", "c++", "-Wno-psabi", "-D_GNU_SOURCE"]
# Device code: the CUDA compiler's to check.
DEVICE_ROOMS = ("kernels/cuda/",)


def compiler(variable, usual):
    return shlex.split(os.environ.get(variable, usual))


def commands(header):
    if header.startswith("include/"):
        return [compiler("CC", "cc") + C99, compiler("CXX", "c++") + CXX11]
    return [compiler("CXX", "c++") + CXX20]


def compile_alone(root, header):
    """What the compiler says; empty if nothing."""
    said = ""
    for command in commands(header):
        done = subprocess.run([*command, *WARNINGS, "-I.", "-Iinclude", "-include", header,
                               "/dev/null"], cwd=root, capture_output=True, text=True)
        if done.returncode != 0:
            said += f"{header}: does not compile alone ({command[1]})\n{done.stderr}"
    return said


if __name__ == "__main__":
    top = tree.root_from_arguments()
    headers = [path for path in tree.sources(top)
               if path.endswith(".h") and not path.startswith(DEVICE_ROOMS)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda header: compile_alone(top, header), headers))
    print(f"{len(headers)} headers")
    tree.report([said for said in results if said])
