"""Prints the folders of PyTorch's headers and, on a second line, of its libraries."""

import pathlib
import sysconfig

import torch  # loads them
from torch.utils import cpp_extension

with open("/proc/self/maps", encoding="utf-8") as maps:
    loaded = [line.split()[-1] for line in maps if "/libtorch_cpu.so" in line]
folders = cpp_extension.library_paths() + [str(pathlib.Path(path).parent) for path in loaded[:1]]

print(":".join(cpp_extension.include_paths() + [sysconfig.get_path("include")]))
print(":".join(folder for folder in folders if pathlib.Path(folder).is_dir()))
