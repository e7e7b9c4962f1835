"""Archives that a Linux kernel unpacks into its first root (cpio, "newc"), and what programs need
beside themselves in one."""
import os
import re
import stat
import subprocess
import tempfile

HEADER = "070701" + "%08x" * 13
MODES = {"file": 0o100755, "link": 0o120777, "folder": 0o040755}


class Archive:
    """Written as it grows. Each path is stored once, after the folders above it."""

    def __init__(self, path, without=()):
        self.file = open(path, "wb")
        self.inside = set(without)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.record("TRAILER!!!", 0, b"")
        self.file.write(b"\0" * (-self.file.tell() % 512))
        self.file.close()

    def record(self, name, mode, data):
        encoded = name.encode() + b"\0"
        self.file.write((HEADER % (len(self.inside), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0,
                                   len(encoded), 0)).encode() + encoded)
        self.file.write(b"\0" * (-self.file.tell() % 4) + data)
        self.file.write(b"\0" * (-self.file.tell() % 4))

    def add(self, path, kind, data=b""):
        path = path.strip("/")
        if not path or path in self.inside:
            return
        self.add(os.path.dirname(path), "folder")
        self.inside.add(path)
        self.record(path, MODES[kind], data)

    def add_copy(self, path, inside=None):
        """A file of this machine, without what debuggers read."""
        if (inside or path).strip("/") not in self.inside:
            self.add(inside or path, "file", stripped(path))

    def add_program(self, path):
        for one in [path, *libraries(path)]:
            self.add_copy(one)


def stripped(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"\x7fELF":
        return data
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "stripped")
        done = subprocess.run(["strip", "-g", "-o", target, path], capture_output=True, check=False)
        if done.returncode != 0:
            return data
        with open(target, "rb") as file:
            return file.read()


def libraries(path):
    """What the loader takes for a program or a library, the loader among it."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return [found for found in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", said, re.M)
            if stat.S_ISREG(os.stat(found).st_mode)]
