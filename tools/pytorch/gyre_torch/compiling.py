"""Compiles the backend's C++ for one PyTorch and one Python. It need not be the one at hand:
what has to be known of it is in a `Torch`."""

import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile

OLDEST = (2, 6)
PACKAGE = pathlib.Path(__file__).resolve().parent
# PyTorch's headers take 20 s to read: so many sources read them at once, by one include each.
PARTS = 3
LIBRARIES = ("torch_python", "torch", "torch_cpu", "c10")
MINUTES = 15


class CannotCompile(ImportError):
    """Why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Torch:
    """A PyTorch and the Python that has it."""
    version: str
    headers: tuple  # folders, also of Python's headers
    libraries: tuple  # folders; none: linked with libraries that are empty but for their names
    cxx11_abi: bool = True
    pybind_abi: tuple = ()  # macros by which classes of two modules are known to each other


def pybind_abi(torch):
    """Macros: types are shared among extensions of one ABI, and the compiler at hand may have
    another one than PyTorch's had."""
    named = [(name, getattr(torch._C, f"_PYBIND11_{name}", None))
             for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")]
    return tuple(f'PYBIND11_{name}="{value}"' for name, value in named if value)


def pybind_key(path):
    """Of a library: extensions of one key know each other's classes. Empty: none is in it."""
    found = re.search(rb"__pybind11_internals_v\d+\w*__", pathlib.Path(path).read_bytes())
    return found[0].decode() if found else ""


def torch_at_hand():
    """PyTorch's wheels have headers and libraries in their folder, Debian's packages the headers
    beside the system's."""
    import torch  # pylint: disable=import-outside-toplevel
    package = pathlib.Path(torch.__file__).resolve().parent
    places = [package / "include", *(above / "include" for above in package.parents)]
    headers = next((place for place in places
                    if (place / "torch/csrc/distributed/c10d/Backend.hpp").is_file()), None)
    if headers is None:
        raise CannotCompile("this PyTorch has no C++ headers (torch/csrc/distributed/c10d). "
                            "Debian: apt-get install libtorch-dev pybind11-dev")
    python = sysconfig.get_path("include")
    if not os.path.isfile(os.path.join(python, "Python.h")):
        raise CannotCompile(f"there is no {python}/Python.h. Install this Python's headers: "
                            "apt-get install python3-dev on Debian and Ubuntu")
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = [pathlib.Path(line.split()[-1]).parent for line in maps
                  if "/libtorch_cpu.so" in line][:1]
    return Torch(torch.__version__, (headers, headers / "torch/csrc/api/include", python),
                 (package / "lib", *loaded), torch.compiled_with_cxx11_abi(),
                 pybind_abi(torch))


def sources_folder():
    """Where "tools/pytorch/src" lies: beside this file in a wheel, above it in a checkout."""
    for top in (PACKAGE / "source", PACKAGE.parent.parent.parent):
        if (top / "tools/pytorch/src/module.cc").is_file():
            return top
    return None


def find_compiler():
    named = os.environ.get("CXX")
    command = shlex.split(named) if named else \
        [next(filter(shutil.which, ("c++", "g++", "clang++")), "")]
    if not command or not command[0] or not shutil.which(command[0]):
        raise CannotCompile(
            f"there is no C++ compiler ({named or 'c++, g++ or clang++'}). Install one, as by\n"
            "  apt-get install g++      (Debian, Ubuntu; dnf install gcc-c++ on Fedora)\n"
            "of g++ 11 or clang 14 or newer, or name one in CXX")
    return command


def run(command, what):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired as error:
        raise CannotCompile(f"{what}: the compiler was not done in {MINUTES} minutes") from error
    if done.returncode != 0:
        raise CannotCompile(f"{what}: {command[0]} ended with exit code {done.returncode}:\n"
                            f"{(done.stderr or done.stdout)[-4000:]}")


def contents():
    """What the result depends on among our files."""
    top = sources_folder()
    kept = hashlib.sha256()
    for path in sorted([*(top / "tools/pytorch/src").iterdir(), pathlib.Path(__file__)]):
        kept.update(path.read_bytes())
    return kept.hexdigest()[:12]


def empty_libraries(folder, compiler):
    """PyTorch's libraries by name alone: at run time they are there already."""
    for name in LIBRARIES:
        run([*compiler, "-shared", f"-Wl,-soname,lib{name}.so", "-x", "c++", os.devnull, "-o",
             folder / f"lib{name}.so"], "a library's name")
    return (folder,)


def compile_extension(torch, gyre_headers, gyre_libraries, target, optimise="-O2", rpath=True):
    """Leaves the extension in `target`, whole or not at all."""
    top = sources_folder()
    compiler = find_compiler()
    sources = sorted((top / "tools/pytorch/src").glob("*.cc"))
    flags = ["-std=c++20", optimise, "-fPIC", "-fvisibility=hidden", "-w", "-pthread", f"-I{top}",
             "-DTORCH_EXTENSION_NAME=_C", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
             *(f"-D{macro}" for macro in torch.pybind_abi),
             *(f"-I{folder}" for folder in gyre_headers),
             *(word for folder in torch.headers for word in ("-isystem", folder))]
    target = pathlib.Path(target)
    with tempfile.TemporaryDirectory(prefix="gyre-torch-") as place:
        place = pathlib.Path(place)

        def compile_part(number):
            part = place / f"part{number}.cc"
            part.write_text("".join(f'#include "{path}"\n' for path in sources[number::PARTS]),
                            encoding="utf-8")
            run([*compiler, *flags, "-c", part, "-o", part.with_suffix(".o")],
                f"part {number + 1} of {PARTS}")
            return part.with_suffix(".o")

        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            parts = list(threads.map(compile_part, range(PARTS)))
        folders = torch.libraries or empty_libraries(place, compiler)
        whole = target.with_name(f".{target.name}.{os.getpid()}")
        run([*compiler, "-shared", "-pthread", *parts, "-Wl,-s", "-Wl,--allow-shlib-undefined",
             "-Wl,--no-as-needed", *(f"-L{folder}" for folder in [*folders, *gyre_libraries]),
             *(f"-l{name}" for name in LIBRARIES), "-l:libgyre.so.0",
             *([f"-Wl,-rpath,{folder}" for folder in gyre_libraries] if rpath else []),
             "-o", whole], "linking")
        os.replace(whole, target)
