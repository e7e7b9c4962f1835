#!/usr/bin/env python3
"""Makes a Python with PyTorch to build and test the backend with, and prints its bin folder.

By default it unpacks the newest PyTorch of Debian's testing release, or of --release, into a
folder, where it runs. So nothing is installed on this machine, and neither root nor a wheel of 2 GB
is needed. With --wheel, it installs PyTorch's own wheel from PyPI in a virtual environment of this
machine's Python.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "package"))
import own_apt  # noqa: E402
from own_apt import run  # noqa: E402

RELEASE = "forky"  # of Debian; another one is an argument
PACKAGES = ["python3-torch", "libtorch-dev", "pybind11-dev", "libopenblas0-pthread",
            "python3-pip", "python3-mesonpy", "python3-pytest", "python3-expecttest",
            "python3-sklearn"]
WHEELS = ["numpy", "pytest", "expecttest", "scikit-learn", "meson-python", "ninja", "pybind11"]
DONE = "complete"
MENDED = "mended"
# Else Python would do it at each start, or at the first: 6 s, not 3, to import PyTorch.
COMPILED = "compiled"


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def without_libuv(text):
    """Python code whose calls of TCPStore that say nothing of libuv do without it."""
    for found in reversed(list(re.finditer(r"\bTCPStore\(", text))):
        end, depth = found.end(), 1
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        arguments = text[found.end():end - 1].rstrip().rstrip(",")
        if arguments and "use_libuv" not in arguments:
            text = f"{text[:found.end()]}{arguments}, use_libuv=False{text[end - 1:]}"
    return text


class DebianPython:
    """Debian's PyTorch and all below it, in a folder."""

    def __init__(self, folder, release):
        self.folder = folder
        self.release = release
        self.apt = own_apt.OwnApt(folder / "apt", release)
        self.root = folder / "root"
        self.bin = folder / "bin"

    def make(self):
        for tool in ("apt-get", "dpkg-deb", "patchelf"):
            if shutil.which(tool) is None:
                sys.exit(f"environment.py: needs {tool} (a Debian system; package patchelf); "
                         "or use PyTorch's own wheel: --wheel")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.download()
        self.unpack()
        pythons = sorted((self.root / "usr/bin").glob("python3.[0-9][0-9]"))
        if not pythons:
            sys.exit("environment.py: Debian's packages brought no Python")
        self.relocate(pythons[-1])
        self.offer(pythons[-1])
        shutil.rmtree(self.folder / "apt")

    def download(self):
        """By an apt of its own: nothing is installed."""
        source = own_apt.mirror()
        if not source:
            sys.exit("environment.py: apt knows no mirror of Debian (apt-get update first); "
                     "or use PyTorch's own wheel: --wheel")
        say(f"Debian {self.release}: downloading {PACKAGES[0]} and what it needs (300 MB)")
        self.apt.set_up(source)
        self.apt.call("install", "-q", "-y", "--download-only", *PACKAGES)

    def unpack(self):
        self.root.mkdir()
        archives = self.apt.archives()
        for number, archive in enumerate(archives, 1):
            if number % 40 == 0 or number == len(archives):
                say(f"unpacking: {number} of {len(archives)} packages")
            content = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive],
                                       stdout=subprocess.PIPE)
            subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", self.root],
                           stdin=content.stdout, check=True)
            if content.wait() != 0:
                sys.exit(f"environment.py: {archive} is no Debian package")

    def relocate(self, python):
        """Its own loader and libraries, wherever it lies; headers where they are asked for."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        if not libraries.is_dir():
            libraries = next((self.root / "usr/lib").glob("*-linux-gnu"))
        loader = next(libraries.glob("ld-linux*.so.*"))
        places = [libraries / "openblas-pthread", libraries, self.root / "usr/lib"]
        # The old kind of path, DT_RPATH, holds for all that the program loads; but not for what has
        # a path of the new kind.
        run("patchelf", "--set-interpreter", loader, "--force-rpath",
            "--set-rpath", ":".join(map(str, places)), python)
        packages = self.root / "usr/lib/python3/dist-packages"
        for library in [*packages.rglob("*.so"), *places[0].glob("*.so.*")]:
            if not library.is_symlink() and run("patchelf", "--print-rpath", library,
                                                capture=True).strip():
                run("patchelf", "--remove-rpath", library)
        headers = self.root / "usr/include" / python.name
        (headers / "pybind11").symlink_to("../pybind11")
        (headers / libraries.name).mkdir()
        (headers / libraries.name / python.name).symlink_to(f"../../{libraries.name}/{python.name}")

    def mend(self):
        """Debian's build has no libuv, and its launchers' stores ask for it all the same: torchrun
        ends at once, whatever USE_LIBUV says."""
        distributed = self.root / "usr/lib/python3/dist-packages/torch/distributed"
        for module in (distributed / "rendezvous.py", *distributed.glob("elastic/rendezvous/*.py")):
            module.write_text(without_libuv(module.read_text()))

    def compile(self):
        """What installing would do. A file that cannot be compiled is one that nobody imports."""
        libraries = self.root / "usr/lib"
        say("compiling its Python files")
        subprocess.run([self.bin / "python", "-m", "compileall", "-q", "-q", "-j", "0",
                        libraries / "python3", *libraries.glob("python3.[0-9][0-9]")],
                       check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def offer(self, python):
        """What is to be called, in a folder without the rest of that Debian."""
        self.bin.mkdir()
        (self.bin / "python").symlink_to(python)
        for name in ("meson", "torchrun", "pip", "pytest"):
            for script in (python.parent / name, python.parent / f"{name}-3"):
                if not script.exists():
                    continue
                _, _, body = script.read_text().partition("\n")
                (self.bin / name).write_text(f"#!{self.bin}/python\n{body}")
                (self.bin / name).chmod(0o755)


class WheelPython:
    """PyTorch's wheel, in a virtual environment."""

    def __init__(self, folder, version):
        self.folder = folder
        self.bin = folder / "bin"
        self.wanted = f"torch=={version}" if version else "torch"

    def make(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        run(sys.executable, "-m", "venv", self.folder)
        say(f"PyPI: installing {self.wanted} (some GB)")
        run(self.bin / "python", "-m", "pip", "install", "--quiet", self.wanted, *WHEELS)

    def mend(self):
        """It has all it asks for."""

    def compile(self):
        """pip has done it."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--wheel", nargs="?", const="", metavar="VERSION",
                        help="PyTorch's wheel from PyPI, the newest or this version")
    parser.add_argument("--release", default=RELEASE, metavar="NAME",
                        help="the release of Debian whose PyTorch is taken (default: %(default)s)")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(cache) / "gyre-torch",
                        help="where it is kept, for all checkouts (default: %(default)s)")
    chosen = parser.parse_args()
    if chosen.wheel is None:
        made = DebianPython(chosen.folder / f"debian-{chosen.release}", chosen.release)
    else:
        made = WheelPython(chosen.folder / f"wheel-{chosen.wheel or 'newest'}", chosen.wheel)
    if not (made.folder / DONE).exists():
        made.make()
        version = run(made.bin / "python", "-c", "import torch; print(torch.__version__)",
                      capture=True)
        (made.folder / DONE).write_text(version)
        say(f"PyTorch {version.strip()} at {made.folder}")
    if not (made.folder / MENDED).exists():
        made.mend()
        (made.folder / MENDED).touch()
    if not (made.folder / COMPILED).exists():
        made.compile()
        (made.folder / COMPILED).touch()
    print(made.bin)


if __name__ == "__main__":
    main()
