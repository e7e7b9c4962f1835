"""README.md's list of parsers is complete: every target has a row and a corpus, every named
function is defined in the named file, and every source file that reads bytes from outside is in the
list."""
import os
import re
import sys

import table

READS = re.compile(r"(?<![\w.>])(?:recv|recvmsg|pread|getenv|strto\w+)\(|(?<![\w>])::read\(|"
                   r"\bifstream\b|\benviron\b|\bfrom_chars\(|\bReader reader|"
                   r"\b(?:Slot|Line)Reader::|\bGrant&")


def sources():
    """Paths of the sources that make up library, launcher and benchmarks."""
    for top in ("lib", "transports", "kernels", "tools", "bench"):
        for folder, _, names in os.walk(os.path.join(table.ROOT, top)):
            for name in names:
                if name.endswith(".cc"):
                    yield os.path.relpath(os.path.join(folder, name), table.ROOT)


def read(path):
    with open(os.path.join(table.ROOT, path), encoding="utf-8") as file:
        return re.sub(r"//[^\n]*", "", file.read())


def violations():
    parsers = table.parsers()
    targets = sorted(name[:-len("_fuzz.cc")] for name in os.listdir(table.HERE)
                     if name.endswith("_fuzz.cc"))
    for name in targets:
        if name not in {parser.target for parser in parsers}:
            yield f"target {name} has no row"
        if not os.listdir(os.path.join(table.HERE, "corpus", name)):
            yield f"target {name} has no corpus"
    for parser in parsers:
        if parser.target not in targets:
            yield f"{parser.path}: there is no target {parser.target}"
        if not os.path.exists(os.path.join(table.ROOT, parser.path)):
            yield f"{parser.path}: there is no such file"
            continue
        for function in parser.functions:
            if not re.search(rf"\b{function}\(", read(parser.path)):
                yield f"{parser.path}: there is no function {function}"
    known = {parser.path for parser in parsers} | set(table.other_readers())
    for path in sources():
        if path not in known and READS.search(read(path)):
            yield f"{path}: reads bytes from outside and is in no table"
    for path in table.other_readers():
        if not os.path.exists(os.path.join(table.ROOT, path)) or not READS.search(read(path)):
            yield f"{path}: does not read, or is not there"


if __name__ == "__main__":
    found = list(violations())
    print("\n".join(found) or f"{len(table.parsers())} parsers")
    sys.exit(1 if found else 0)
