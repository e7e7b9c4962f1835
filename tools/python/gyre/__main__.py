"""python -m gyre WHAT: prints the folder of the libraries, the headers, or pkg-config's files."""

import os
import sys

import gyre

FOLDERS = {"prefix": gyre.prefix, "include": gyre.include_folder, "lib": gyre.library_folder,
           "pkg-config": lambda: os.path.join(gyre.library_folder(), "pkgconfig")}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in FOLDERS:
        sys.exit(f"usage: python -m gyre {{{','.join(FOLDERS)}}}: prints a folder")
    print(FOLDERS[sys.argv[1]]())


def run_program():
    """Becomes the program by whose name it was called; pip makes such scripts."""
    name = os.path.basename(sys.argv[0])
    path = gyre.program(name)
    os.execv(path, [name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
