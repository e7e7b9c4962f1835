"""Finds the backend's compiled part, gyre_torch._C, for the PyTorch and the Python at hand: beside
this file, in the folder of a wheel, or in the user's cache, where the first import puts it."""

import ctypes
import fcntl
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time

import torch

from . import compiling
from .compiling import CannotCompile, OLDEST, PACKAGE

# One extension serves all patch releases of a minor one.
MINOR = ".".join(re.findall(r"\d+", torch.__version__)[:2])
TAG = sys.implementation.cache_tag  # cpython-313
WAIT_S = 60 * (compiling.MINUTES + 5)  # for another process that compiles


def fail(why):
    raise ImportError(f"gyre_torch (PyTorch {torch.__version__}, {sys.executable}): {why}")


def load_file(path):
    name = f"{__package__}._C"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def beside():
    """As a build for one PyTorch installs it, with the version in a file."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = PACKAGE / f"_C{suffix}"
        built_for = PACKAGE / "built_for.txt"
        if not path.is_file() or not built_for.is_file():
            continue
        theirs = built_for.read_text(encoding="utf-8").strip()
        if theirs == MINOR:
            return path
        if compiling.sources_folder() is None:
            fail(f"it was built for PyTorch {theirs}. Install it anew for this one")
    return None


def loaded_pybind_keys():
    """Where pybind11 keeps what the extensions of one key share."""
    python = ctypes.pythonapi
    python.PyInterpreterState_Get.restype = ctypes.c_void_p
    python.PyInterpreterState_GetDict.restype = ctypes.c_void_p  # borrowed
    python.PyInterpreterState_GetDict.argtypes = [ctypes.c_void_p]
    shared = python.PyInterpreterState_GetDict(python.PyInterpreterState_Get())
    names = ctypes.cast(shared, ctypes.py_object).value if shared else ()
    return {name for name in names if str(name).startswith("__pybind11_internals_")}


def brought():
    """Compiled before the wheel was packed, for PyPI's PyTorch and usual builds of Python. Others
    of the same version, as Debian's, may know no class of it."""
    path = PACKAGE / "prebuilt" / f"torch{MINOR}-{TAG}" / "_C.so"
    serves = path.is_file() and not sys.abiflags and \
        compiling.pybind_key(path) in loaded_pybind_keys()
    return path if serves else None


def pkg_config(question):
    """The folders of an answer, or nothing if there is no such program or no such package."""
    try:
        said = subprocess.run(["pkg-config", question, "gyre"], capture_output=True, text=True,
                              check=False).stdout
    except OSError:
        return []
    return [word[2:] for word in said.split() if word[:2] in ("-I", "-L")]


def gyre_package():
    """The Python package that the wheel `gyre` installs; a folder of that name is none."""
    try:
        import gyre  # pylint: disable=import-outside-toplevel
    except ImportError:
        return None
    return gyre if hasattr(gyre, "library_folder") else None


def gyre_folders():
    """Gyre's headers and libraries: of the Python package, else of the system."""
    gyre = gyre_package()
    if gyre is not None:
        return [gyre.include_folder()], [gyre.library_folder()]
    headers = pkg_config("--cflags-only-I") or ["/usr/include", "/usr/local/include"]
    if not any(os.path.isfile(os.path.join(folder, "gyre/gyre.h")) for folder in headers):
        raise CannotCompile("Gyre's headers were not found. Install Gyre's wheel or its package "
                            "libgyre-dev, which tools/dev makes (PyPI's gyre is another project), "
                            "or Gyre from source, with pkg-config knowing it (PKG_CONFIG_PATH)")
    return headers, pkg_config("--libs-only-L")


def load_gyre():
    """Of the Python package, the library has to be there before what is linked with it."""
    gyre = gyre_package()
    if gyre is not None:
        ctypes.CDLL(os.path.join(gyre.library_folder(), "libgyre.so.0"), mode=ctypes.RTLD_GLOBAL)


def cache_folder():
    top = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(top) / "gyre-torch" / "built" / \
        f"torch{torch.__version__}-{TAG}-{compiling.contents()}"


def compiled():
    """Compiled once for all processes of this user: others wait meanwhile."""
    folder = cache_folder()
    target = folder / "_C.so"
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "w", encoding="utf-8")
    except OSError as error:
        raise CannotCompile(f"{folder} cannot be written ({error.strerror}); it is in "
                            "XDG_CACHE_HOME, or else in ~/.cache") from error
    with lock:
        until = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise CannotCompile(f"another process has held {folder}/lock for "
                                        f"{WAIT_S} s") from None
                time.sleep(0.2)
        if not target.is_file():
            print(f"gyre_torch: compiling for PyTorch {torch.__version__}, once (a minute or two)",
                  file=sys.stderr, flush=True)
            headers, libraries = gyre_folders()
            compiling.compile_extension(compiling.torch_at_hand(), headers, libraries, target)
    return target


def load():
    if tuple(map(int, MINOR.split("."))) < OLDEST:
        fail(f"it needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer")
    load_gyre()
    path = beside() or brought()
    if path is not None:
        return load_file(path)
    if compiling.sources_folder() is None:
        fail("this package has neither a part for this PyTorch nor its sources")
    try:
        return load_file(compiled())
    except CannotCompile as error:
        fail(f"it compiles itself for a PyTorch at its first import, and could not: {error}")
