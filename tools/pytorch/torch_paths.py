"""Prints five lines: the folders of PyTorch's headers, those of its libraries, its C++ ABI (1 or
0), its minor version, and macros that name the ABI of its pybind11. Says so, and prints none, if
this Python has no PyTorch that the backend can be built for."""

import pathlib
import re
import sys
import sysconfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gyre_torch"))
from compiling import OLDEST, pybind_abi  # noqa: E402

try:
    import torch  # loads the libraries
except ModuleNotFoundError:
    sys.exit(f"gyre_torch needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, and {sys.executable} has "
             "none (pip takes the Python at hand with --no-build-isolation)")
if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < OLDEST:
    sys.exit(f"gyre_torch needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, and {sys.executable} has "
             f"{torch.__version__}")

from torch.utils import cpp_extension  # noqa: E402

with open("/proc/self/maps", encoding="utf-8") as maps:
    loaded = [line.split()[-1] for line in maps if "/libtorch_cpu.so" in line]
folders = cpp_extension.library_paths() + [str(pathlib.Path(path).parent) for path in loaded[:1]]

print(":".join(cpp_extension.include_paths() + [sysconfig.get_path("include")]))
print(":".join(folder for folder in folders if pathlib.Path(folder).is_dir()))
print(int(torch.compiled_with_cxx11_abi()))
print(".".join(re.findall(r"\d+", torch.__version__)[:2]))
print(":".join(pybind_abi(torch)))
