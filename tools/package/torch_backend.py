"""How pip makes a wheel of gyre-torch's source distribution (PEP 517): it packs the files. They
compile themselves at the first import, for the PyTorch that is there then."""

import pathlib
import re

from wheel_file import Metadata, write_sdist, write_wheel

TOP = pathlib.Path(__file__).resolve().parent.parent
# As in tools/pytorch/pyproject.toml.
ENTRY_POINTS = ("[torch.distributed.backends]\ngyre = gyre_torch:register\n\n"
                "[torch.backends]\ngyre = gyre_torch_autoload:start\n")


def metadata():
    text = (TOP / "PKG-INFO").read_text(encoding="utf-8")
    return Metadata("gyre-torch", re.search(r"^Version: (.*)$", text, re.M)[1],
                    re.search(r"^Summary: (.*)$", text, re.M)[1],
                    re.findall(r"^Requires-Dist: (.*)$", text, re.M))


def files(top):
    return {str(path.relative_to(TOP)): path for path in (TOP / top).rglob("*") if path.is_file()}


def modules():
    return {**files("gyre_torch"), "gyre_torch_autoload.py": TOP / "gyre_torch_autoload.py"}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    del config_settings, metadata_directory
    return write_wheel(wheel_directory, metadata(), "py3-none-any", modules(),
                       ENTRY_POINTS).name


def build_sdist(sdist_directory, config_settings=None):
    del config_settings
    everything = {**modules(), **files("build"),
                  "pyproject.toml": TOP / "pyproject.toml"}
    return write_sdist(sdist_directory, metadata(), everything).name
