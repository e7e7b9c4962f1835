"""Compiles the backend against each release of PyTorch that it supports: a row for each. Only the
headers of PyTorch's wheels are kept, so nothing is installed."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tools/pytorch/gyre_torch"))
import compiling  # noqa: E402

# The last patch release of each minor one that is in the matrix.
RELEASES = ("2.6.0", "2.8.0", "2.10.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
# Headers are the same for all processors, and the wheels for this one are much smaller: those for
# x86-64 contain CUDA code.
SMALL = ("--platform", "manylinux_2_28_aarch64", "--implementation", "cp", "--python-version",
         "3.11", "--only-binary", ":all:", "--no-deps")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / \
    "gyre-torch/headers"
KEY = "pybind.txt"


def headers_of(release):
    """The folder of the headers, with pybind.txt, the key of their pybind11; from PyPI at the first
    call."""
    folder = CACHE / release
    if (folder / KEY).is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="gyre-matrix-") as place:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *SMALL, "--dest",
                               place, f"torch=={release}"], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise compiling.CannotCompile(f"pip could not bring the wheel: {done.stderr[-400:]}")
        (wheel,) = pathlib.Path(place).glob("*.whl")
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("torch/include/"):
                    archive.extract(name, part)
            library = archive.extract("torch/lib/libtorch_python.so", place)
        (part / KEY).write_text(compiling.pybind_key(library), encoding="utf-8")
    os.rename(part, folder)
    return folder


def compile_for(release, target, python_headers, optimise):
    """Neither PyTorch nor Gyre is there: libraries are linked by name."""
    headers = headers_of(release) / "torch/include"
    torch = compiling.Torch(release, (headers, headers / "torch/csrc/api/include",
                                      *python_headers), ())
    with tempfile.TemporaryDirectory(prefix="gyre-matrix-") as place:
        place = pathlib.Path(place)
        compiler = compiling.find_compiler()
        compiling.run([*compiler, "-shared", "-Wl,-soname,libgyre.so.0", "-x", "c++", os.devnull,
                       "-o", place / "libgyre.so.0"], "a library's name")
        compiling.compile_extension(torch, [TOP / "include"], [place], target, optimise,
                                    rpath=False)


def try_release(release):
    # Not optimised: it is not run.
    with tempfile.TemporaryDirectory(prefix="gyre-matrix-") as place:
        compile_for(release, pathlib.Path(place) / "_C.so", [sysconfig.get_path("include")], "-O0")


def main():
    parser = argparse.ArgumentParser(prog="tools/dev torch-matrix", description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES, metavar="RELEASE",
                        help=f"of PyTorch (default: {' '.join(RELEASES)})")
    code = 0
    for release in parser.parse_args().releases:
        began = time.monotonic()
        try:
            try_release(release)
            verdict = "compiles"
        except compiling.CannotCompile as error:
            verdict, code = f"FAILED: {error}", 1
        print(f"PyTorch {release:8} {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
