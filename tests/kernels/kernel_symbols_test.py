#!/usr/bin/env python3
"""Code compiled for one processor must not be linked in for a lesser one. No vector library of
kernels/cpu may define a symbol that the linker could choose in place of another object's (weak, as
for inline functions and templates). It may define only its table. Arguments: nm, then the archives.
"""

import subprocess
import sys


def offered(nm, archive):
    """(type, name) of each symbol that the archive defines for others."""
    lines = subprocess.run([nm, "--defined-only", "--extern-only", "--demangle", archive],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    return [tuple(line.split(maxsplit=2)[1:]) for line in lines if len(line.split()) >= 3]


def main():
    nm, *archives = sys.argv[1:]
    faults = []
    for archive in archives:
        symbols = offered(nm, archive)
        if not symbols:
            faults.append(f"{archive}: no symbols found")
        for kind, name in symbols:
            if not name.endswith("_table"):
                faults.append(f"{archive}: offers {name} ({kind})")
    print("\n".join(faults) if faults else f"{len(archives)} libraries offer their tables alone")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
