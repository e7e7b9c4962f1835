"""Writes wheels (PEP 427) and source distributions: archives with files, their hashes and what pip
has to know. Nothing is built here. Two calls with the same files write the same bytes."""

import base64
import gzip
import hashlib
import io
import pathlib
import tarfile
import zipfile

MOMENT = (1980, 1, 1, 0, 0, 0)


class Metadata:
    """What a distribution says of itself."""

    def __init__(self, name, version, summary, requires=(), python=">=3.9"):
        self.name, self.version, self.requires = name, version, list(requires)
        self.text = "".join(
            f"{line}\n" for line in [
                "Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}",
                f"Summary: {summary}", "License: Apache-2.0", f"Requires-Python: {python}",
                "Classifier: Operating System :: POSIX :: Linux",
                *(f"Requires-Dist: {one}" for one in self.requires)])

    def stem(self):
        return f"{self.name.replace('-', '_')}-{self.version}"


def digest(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(
        b"=").decode()


def write_wheel(folder, metadata, tag, files, entry_points=""):
    """`files`: names in the wheel, with bytes or the path of a file. Returns the wheel's path."""
    info = metadata.stem() + ".dist-info"
    said = {f"{info}/METADATA": metadata.text.encode(),
            f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: gyre\n"
                              f"Root-Is-Purelib: {str(tag.endswith('any')).lower()}\n"
                              f"Tag: {tag}\n").encode()}
    if entry_points:
        said[f"{info}/entry_points.txt"] = entry_points.encode()
    path = pathlib.Path(folder) / f"{metadata.stem()}-{tag}.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, content, mode):
            item = zipfile.ZipInfo(name, MOMENT)
            item.external_attr = (0o100000 | mode) << 16
            item.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(item, content)

        for name, source in sorted({**files, **said}.items()):
            content = source if isinstance(source, bytes) else pathlib.Path(source).read_bytes()
            mode = 0o644 if isinstance(source, bytes) or \
                not pathlib.Path(source).stat().st_mode & 0o100 else 0o755
            record.append(f"{name},{digest(content)},{len(content)}\n")
            add(name, content, mode)
        add(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode(), 0o644)
    return path


def write_sdist(folder, metadata, files):
    """A source distribution: the files, and PKG-INFO."""
    path = pathlib.Path(folder) / f"{metadata.stem()}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as target, \
            gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, source in sorted({**files, "PKG-INFO": metadata.text.encode()}.items()):
            content = source if isinstance(source, bytes) else pathlib.Path(source).read_bytes()
            item = tarfile.TarInfo(f"{metadata.stem()}/{name}")
            item.size, item.mode = len(content), 0o644
            if not isinstance(source, bytes) and pathlib.Path(source).stat().st_mode & 0o100:
                item.mode = 0o755
            archive.addfile(item, io.BytesIO(content))
    return path
