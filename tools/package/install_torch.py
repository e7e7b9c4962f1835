"""Installs the backend for PyTorch where packages lie, compiled for the PyTorch at hand, and prints
the minor version of that. For Debian's and conda's packages. install_torch.py PACKAGES LIBRARIES"""

import pathlib
import re
import shutil
import sys
import sysconfig

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tools/pytorch/gyre_torch"), str(TOP / "tools/package")]
import compiling  # noqa: E402
from torch_backend import ENTRY_POINTS  # noqa: E402
from wheel_file import Metadata  # noqa: E402


def main(packages, libraries):
    torch = compiling.torch_at_hand()
    major, minor = map(int, re.findall(r"\d+", torch.version)[:2])
    version = re.search(r"version: '([^']+)'", (TOP / "meson.build").read_text(encoding="utf-8"))[1]
    folder = pathlib.Path(packages) / "gyre_torch"
    info = pathlib.Path(packages) / f"gyre_torch-{version}.dist-info"
    for made in (folder, info):
        made.mkdir(parents=True)
    for path in (TOP / "tools/pytorch/gyre_torch").glob("*.py"):
        shutil.copy(path, folder)
    shutil.copy(TOP / "tools/pytorch/gyre_torch_autoload.py", packages)
    (folder / "built_for.txt").write_text(f"{major}.{minor}\n", encoding="utf-8")
    (info / "METADATA").write_text(
        Metadata("gyre-torch", version, "PyTorch's process groups over Gyre").text,
        encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    compiling.compile_extension(torch, [TOP / "include"], [libraries],
                                folder / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}",
                                rpath=False)
    print(f"{major}.{minor}")


if __name__ == "__main__":
    main(*sys.argv[1:])
