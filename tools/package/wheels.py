"""Builds Gyre's wheels and source distributions into dist/, for Linux with glibc 2.28 or newer."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tests/house"))
import installed  # noqa: E402
import prebuilt  # noqa: E402
import toolchain  # noqa: E402
import tree  # noqa: E402
from toolchain import say  # noqa: E402
from torch_backend import ENTRY_POINTS  # noqa: E402
from wheel_file import Metadata, write_sdist, write_wheel  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / \
    "gyre/wheels"
MACHINES = ("x86_64", "aarch64")
OPTIONS = ("-Dtests=false", "-Dhwloc=enabled", "-Dverbs=enabled", "-Ddebug=false", "-Dprefix=/",
           "-Dlibdir=lib", "-Dprefer_static=true")
IMAGES = "gyre_cuda"  # the library of the CUDA kernels, which libgyre finds beside itself
DETAILS = """\
wheels:
  gyre         libraries, headers, the program `gyre` and the perf programs; for every Python.
               OpenSSL, hwloc, tinyxml2 and fmt are in it, static and hidden
  gyre-cu13    the CUDA kernels, compiled by nvcc of CUDA 13, for machines with GPUs; it installs
               them beside the libraries of gyre. Only where nvcc is
  gyre-torch   the backend for PyTorch: its sources, which compile themselves at the first import,
               and on x86-64 the result for PyPI's newest PyTorch and Debian's Pythons
  sdist        the source distributions of both

The compiler is Zig's, from PyPI, and the static libraries are built from Debian's sources. For
gyre-torch it is g++ of Debian 12, as PyTorch needs the GNU library of C++. All are kept in
~/.cache/gyre/wheels.

example:
  tools/dev wheels gyre --jobs 1
"""


def version():
    return re.search(r"version: '([^']+)'", (TOP / "meson.build").read_text(encoding="utf-8"))[1]


def configure(tools, name, options):
    build_folder = tools.folder / "build"
    shutil.rmtree(build_folder, ignore_errors=True)
    say(f"{name} for {tools.target()} ({tools.log})")
    tools.run("meson", "setup", build_folder, TOP, "--cross-file", tools.machine_file(), *options,
              folder=TOP)
    return build_folder


def build(tools):
    """The installed tree of the libraries and programs."""
    build_folder, stage = configure(tools, "gyre", (*OPTIONS, "-Dcuda=disabled")), \
        tools.folder / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    tools.run("ninja", "-C", build_folder, f"-j{tools.jobs}", *installed.targets(build_folder),
              folder=TOP)
    tools.run("meson", "install", "-C", build_folder, "--no-rebuild", "--destdir", stage,
              folder=TOP)
    shutil.rmtree(build_folder)
    return stage


def relocated(text, library_version):
    """Of pkg-config and CMake: from the file's own place, and to the names that a wheel can hold,
    which has no links."""
    text = re.sub(r"^prefix=.*", "prefix=${pcfiledir}/../..", text, flags=re.M)
    return text.replace(f".so.{library_version}", ".so.0").encode()


def library_files(stage, package, library_version):
    files = {}
    for name in ("gyre", "gyre_gradsync"):
        files[f"{package}/lib/lib{name}.so.0"] = stage / f"lib/lib{name}.so.{library_version}"
        files[f"{package}/lib/lib{name}.so"] = f"INPUT(lib{name}.so.0)\n".encode()
    for path in [*stage.glob("lib/pkgconfig/*.pc"), *stage.glob("lib/cmake/gyre/*")]:
        files[f"{package}/{path.relative_to(stage)}"] = \
            relocated(path.read_text(encoding="utf-8"), library_version)
    return files


def tag_of(tools):
    return f"py3-none-manylinux_{toolchain.GLIBC.replace('.', '_')}_{tools.machine}"


def gyre_wheel(tools, stage, out):
    number = version()
    files = library_files(stage, "gyre", number)
    for path in (TOP / "tools/python/gyre").glob("*.py"):
        files[f"gyre/{path.name}"] = path.read_text(encoding="utf-8").replace(
            "@version@", number).encode()
    for path in stage.glob("include/gyre/*.h"):
        files[f"gyre/include/gyre/{path.name}"] = path
    programs = sorted(path for path in stage.glob("bin/*") if os.access(path, os.X_OK))
    for path in programs:
        files[f"gyre/bin/{path.name}"] = path
    for name, path in {"LICENSE": TOP / "LICENSE", **tools.licences()}.items():
        files[f"gyre-{number}.dist-info/licenses/{name}"] = path
    scripts = "".join(f"{path.name} = gyre.__main__:run_program\n" for path in programs)
    return write_wheel(out, Metadata("gyre", number, "Collective communication between processes, "
                                     "threads and GPUs"),
                       tag_of(tools), files, f"[console_scripts]\n{scripts}")


def find_nvcc():
    return shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")


def check_nvcc():
    """The wheel's name says which CUDA's drivers load its kernels."""
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("wheels: gyre-cu13 needs nvcc of CUDA 13: tools/dev setup --cuda brings one")
    said = subprocess.run([nvcc, "--version"], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    (release,) = re.findall(r"release ([\d.]+)", said)
    if not release.startswith("13."):
        sys.exit(f"wheels: gyre-cu13 needs nvcc of CUDA 13, and {nvcc} is of CUDA {release}")


def build_images(tools):
    """The library of the CUDA kernels."""
    check_nvcc()
    build_folder = configure(tools, "gyre-cu13", (*OPTIONS, "-Dcuda=enabled",
                                                  "-Dkernel_images=beside"))
    library = f"kernels/cuda/lib{IMAGES}.so.{version()}"
    tools.run("ninja", "-C", build_folder, f"-j{tools.jobs}", library, folder=TOP)
    content = (build_folder / library).read_bytes()
    shutil.rmtree(build_folder)
    return content


def images_wheel(tools, library, out):
    number = version()
    files = {f"gyre/lib/lib{IMAGES}.so.0": library}
    # What is linked into it.
    for name, path in {"LICENSE": TOP / "LICENSE", **tools.licences()}.items():
        if name in ("LICENSE", "libcxx.txt", "libfmt-dev.txt"):
            files[f"gyre_cu13-{number}.dist-info/licenses/{name}"] = path
    return write_wheel(out, Metadata("gyre-cu13", number, "The CUDA kernels of Gyre",
                                     [f"gyre=={number}"]), tag_of(tools), files)


def torch_metadata():
    number = version()
    return Metadata("gyre-torch", number, "PyTorch's process groups over Gyre",
                    [f"gyre>={number}", "torch>=2.6"])


def torch_files():
    """The package with its sources, as the wheel and the source distribution have it."""
    folder = TOP / "tools/pytorch"
    files = {f"gyre_torch/{path.name}": path for path in folder.glob("gyre_torch/*.py")}
    for path in folder.glob("src/*"):
        files[f"gyre_torch/source/tools/pytorch/src/{path.name}"] = path
    files["gyre_torch/LICENSE"] = TOP / "LICENSE"
    files["gyre_torch_autoload.py"] = folder / "gyre_torch_autoload.py"
    return files


def torch_wheel(out, compiled=None):
    """`compiled`: files by their place, as of prebuilt.build. Without, it is for all machines."""
    files = {**torch_files(), **{f"gyre_torch/prebuilt/{name}": path
                                 for name, path in (compiled or {}).items()}}
    tag = f"py3-none-{prebuilt.TAG if compiled else 'any'}"
    return write_wheel(out, torch_metadata(), tag, files, ENTRY_POINTS)


def torch_sdist(out):
    metadata, files = torch_metadata(), torch_files()
    requires = ", ".join(f'"{one}"' for one in metadata.requires)
    for name in ("wheel_file.py", "torch_backend.py"):
        files[f"build/{name}"] = TOP / "tools/package" / name
    files["pyproject.toml"] = (
        '[build-system]\nrequires = []\nbuild-backend = "torch_backend"\n'
        f'backend-path = ["build"]\n\n[project]\nname = "gyre-torch"\nversion = "{version()}"\n'
        f'requires-python = ">=3.9"\ndependencies = [{requires}]\n').encode()
    return write_sdist(out, metadata, files)


def gyre_sdist(out):
    """All that git tracks: Meson builds it, as a checkout."""
    files = {path: TOP / path for path in tree.files(TOP) if not path.startswith("dist/")}
    return write_sdist(out, Metadata("gyre", version(), "Collective communication"), files)


def refuse_traces(wheel, folders):
    """Ends the process if a file of the wheel names a folder that only its builder has."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            for folder in folders:
                if str(folder).encode() in content:
                    sys.exit(f"wheels: {name} in {wheel.name} names the builder's {folder}")


def serves(found, name):
    """Whether a wheel of that name promises no older glibc than auditwheel has found."""
    needs, promises = (re.search(r"manylinux_(\d+)_(\d+)_(\w+?)(?:\.whl)?$", one).groups()
                       for one in (found, name))
    return needs[2] == promises[2] and \
        tuple(map(int, needs[:2])) <= tuple(map(int, promises[:2]))


def audit(wheel):
    """What auditwheel says; ends the process if the wheel is not what its name promises."""
    refuse_traces(wheel, (CACHE, TOP))
    python = CACHE / "audit/bin/python"
    if not python.exists():
        toolchain.own_apt.run(sys.executable, "-m", "venv", CACHE / "audit")
        toolchain.own_apt.run(python, "-m", "pip", "install", "--quiet", "auditwheel")
    said = subprocess.run([python, "-m", "auditwheel", "show", wheel], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    said = " ".join(said.split())
    found = re.search(r'is consistent with the following platform tag: "(manylinux_[^"]+)"', said)
    if found is None or not serves(found[1], wheel.name):
        sys.exit(f"wheels: auditwheel does not find {wheel.name} right:\n{said}")
    say(f"auditwheel: {wheel.name} is consistent with {found[1]}")


def read_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="tools/dev wheels", description=__doc__, epilog=DETAILS,
        usage="%(prog)s [WHEEL ..] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="*", metavar="WHEEL", help=argparse.SUPPRESS)
    parser.add_argument("--machine", choices=MACHINES, default=MACHINES[0],
                        help="kind of processor (default: %(default)s); what is made for aarch64 "
                        "ran under emulation alone")
    parser.add_argument("--out", type=pathlib.Path,
                        help="folder for the wheels (default: dist; dist/aarch64 for aarch64, as "
                        "pip would take dist/*.whl for this machine's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)),
                        help="compilations at once (default: %(default)s)")
    said = parser.parse_args(arguments)
    said.out = said.out or TOP / "dist" / ("" if said.machine == MACHINES[0] else said.machine)
    known = ("gyre", "gyre-cu13", "gyre-torch", "sdist")
    for name in said.wheels:
        if name not in known:
            parser.error(f"there is no wheel {name}; there are {', '.join(known)}")
    if not said.wheels:
        said.wheels = [name for name in known if name != "gyre-cu13" or find_nvcc()]
        if "gyre-cu13" not in said.wheels:
            say("there is no nvcc, so that gyre-cu13 is not built")
    return said


def main(arguments):
    said = read_arguments(arguments)
    made = []
    tools = toolchain.Toolchain(CACHE, said.machine, said.jobs)
    if {"gyre", "gyre-cu13"} & set(said.wheels):
        tools.make()
    if "gyre" in said.wheels:
        made.append(gyre_wheel(tools, build(tools), said.out))
    if "gyre-cu13" in said.wheels:
        made.append(images_wheel(tools, build_images(tools), said.out))
    for wheel in made:
        audit(wheel)
    if "gyre-torch" in said.wheels:
        compiled = prebuilt.build(CACHE / "torch") if said.machine == prebuilt.MACHINE else {}
        for older in said.out.glob("gyre_torch-*.whl"):
            older.unlink()  # pip takes no two of one version
        made.append(torch_wheel(said.out, compiled))
    if "sdist" in said.wheels:
        made += [gyre_sdist(said.out), torch_sdist(said.out)]
    for path in made:
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
