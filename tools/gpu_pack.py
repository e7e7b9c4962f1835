"""Packs a tree for a machine with a GPU and no compiler (tools/dev gpu --pack). It takes programs
and images of build-gpu/, the libraries that they load, and the commit. The C library and those of
the compiler are the other machine's."""
import os
import re
import shutil
import subprocess

from gpu_pieces import BUILD

PROGRAMS = ("tests/gpu/gpu_test", "tools/gyre", "bench/gpu/gpu_moves",
            "bench/compare/nccl_all_reduce",
            *(f"bench/{name}_perf" for name in ("all_reduce", "all_gather", "alltoall", "broadcast",
                                                "reduce", "reduce_scatter", "sendrecv")))
IMAGES = tuple(f"bench/gpu/{name}.fatbin" for name in ("moves", "ring_interpreted",
                                                       "ring_straight"))
EVERYWHERE = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so|ld-linux|linux-vdso")
OURS = "libgyre.so"
SITE = "site"  # where PyTorch's backend may lie, compiled for the other machine (torch_on_gpu.py)


def needed_libraries(programs):
    """Paths, by the names under which they are loaded."""
    found = {}
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", said, re.M):
            if not EVERYWHERE.match(name) and not name.startswith(OURS):
                found[name] = path
    return found


def pack(folder):
    """Bytes that were packed into the folder, which must be new or empty."""
    def put(source, name, strips=False):
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(source, target)
        if strips:
            subprocess.run(["strip", target], check=True)

    # Without NCCL, its program is not built.
    there = [name for name in PROGRAMS if os.path.exists(os.path.join(BUILD, name))]
    for name in there:
        put(os.path.join(BUILD, name), name, strips=True)
    for name in (*IMAGES, "commit.txt"):
        put(os.path.join(BUILD, name), name)
    for name in ("libgyre.so", "libgyre.so.0"):  # no links: some copies lose them
        put(os.path.join(BUILD, "lib", "api", name), f"lib/api/{name}", strips=True)
    if os.path.isdir(os.path.join(BUILD, SITE)):
        shutil.copytree(os.path.join(BUILD, SITE), os.path.join(folder, SITE))
    for name, path in needed_libraries(os.path.join(BUILD, name) for name in there).items():
        put(path, f"needed/{name}")
    return sum(os.path.getsize(os.path.join(place, file))
               for place, _, files in os.walk(folder) for file in files)
