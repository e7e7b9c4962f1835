"""Gyre's libraries, headers and programs as a Python package, and where they lie.

    cc hello.c $(PKG_CONFIG_PATH=$(python -m gyre pkg-config) pkg-config --cflags --libs gyre)
    cmake -DCMAKE_PREFIX_PATH=$(python -m gyre prefix)
"""

import os

__version__ = "@version@"


def prefix():
    """The folder with include, lib and bin."""
    return os.path.dirname(os.path.abspath(__file__))


def include_folder():
    return os.path.join(prefix(), "include")


def library_folder():
    return os.path.join(prefix(), "lib")


def program(name):
    """The path of `gyre`, `all_reduce_perf`, ..."""
    return os.path.join(prefix(), "bin", name)
