#!/usr/bin/env python3
"""Our libraries register no static destructors: exit() must not destroy objects that other threads
still use. Looks at the callers of __cxa_atexit, by which a compiler registers such a destructor.
The one allowed caller is atexit itself; the library registers a function there that tells peers of
the end and frees nothing.

usage: destroyed_at_exit_test.py LIBRARY...
"""
import re
import subprocess
import sys

ALLOWED = {"atexit"}


def registering(library):
    """The functions that register a destructor."""
    listing = subprocess.run(
        ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", library],
        capture_output=True, text=True, check=True).stdout
    found, function = set(), ""
    for line in listing.splitlines():
        header = re.match(r"^[0-9a-f]+ <(.*)>:$", line)
        if header:
            function = header.group(1)
        elif re.search(r"\b(call|jmp|bl|b)\b.*<__cxa_atexit", line) and "@plt" not in function:
            found.add(function)
    return found


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    wrong = 0
    for library in sys.argv[1:]:
        found = registering(library)
        if not found & ALLOWED and "libgyre.so" in library:
            print(f"{library}: not even atexit calls __cxa_atexit: this test sees nothing")
            wrong += 1
        for function in sorted(found - ALLOWED):
            print(f"{library}: a static object is destroyed at exit: see {function}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
