"""The C++ of gyre-torch, compiled for PyPI's newest releases of PyTorch and Debian's Pythons. It is
compiled here on Debian 12, whose libraries are old enough for the tag of the wheel."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tools/pytorch"), str(TOP / "tools/pytorch/gyre_torch")]
import compiling  # noqa: E402
import matrix  # noqa: E402
import own_apt  # noqa: E402
from toolchain import say  # noqa: E402

RELEASES = matrix.RELEASES[-3:]
# The release of Debian that has its headers.
PYTHONS = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky"}
MACHINE = "x86_64"
# By https://peps.python.org/pep-0600 and auditwheel's policies: what a system of the tag has.
TAG = f"manylinux_2_35_{MACHINE}"
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}


def python_headers(folder, version):
    """Folders of Python's headers, out of Debian's package."""
    place = folder / f"python{version}"
    include = place / "usr/include"
    if not place.is_dir():
        say(f"headers of Python {version}, of Debian {PYTHONS[version]}")
        apt = own_apt.OwnApt(folder / "apt", PYTHONS[version])
        apt.set_up(own_apt.mirror())
        with tempfile.TemporaryDirectory() as download:
            apt.call("download", "-q", f"libpython{version}-dev", folder=download)
            (package,) = pathlib.Path(download).glob("*.deb")
            part = folder / f"python{version}.part"
            shutil.rmtree(part, ignore_errors=True)
            own_apt.run("dpkg-deb", "--extract", package, part)
            part.rename(place)
    # <python3.11/pyconfig.h> asks for <x86_64-linux-gnu/python3.11/pyconfig.h>.
    return [include / f"python{version}", include]


def needed_versions(library):
    """(GLIBC, 2, 34) and so on, of the symbols that it takes from elsewhere."""
    said = subprocess.run(["objdump", "-T", library], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    found = re.findall(r"\*UND\*.*\((GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)\)", said)
    return {(name, *map(int, number.split("."))) for name, number in found}


def too_new(needed):
    """Of versions that are needed, those that a system of the tag lacks."""
    return [one for one in sorted(needed) if one[1:] > NEWEST[one[0]]]


def check(library, release):
    """Ends the process if a system of the tag would not load it, or PyTorch know no class of it."""
    if newer := too_new(needed_versions(library)):
        sys.exit(f"wheels: {library} needs {newer}, and {TAG} has no more than {NEWEST}: make this "
                 "wheel on Debian 12")
    theirs = (matrix.headers_of(release) / matrix.KEY).read_text(encoding="utf-8")
    ours = compiling.pybind_key(library)
    if ours != theirs:
        sys.exit(f"wheels: pybind11 of {library} is {ours}, and PyTorch {release} has {theirs}")


def build(folder):
    """{place in gyre_torch/prebuilt: file}. What is in `folder` already is not compiled again."""
    made = {}
    for release in RELEASES:
        for version in PYTHONS:
            minor = ".".join(release.split(".")[:2])
            name = f"torch{minor}-cpython-{version.replace('.', '')}/_C.so"
            library = folder / compiling.contents() / name
            made[name] = library
            if library.is_file():
                continue
            say(f"gyre-torch for PyTorch {minor} and Python {version}")
            library.parent.mkdir(parents=True, exist_ok=True)
            part = library.with_suffix(".part")
            matrix.compile_for(release, part, python_headers(folder, version), "-O2")
            check(part, release)
            part.rename(library)
    return made
