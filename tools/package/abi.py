"""The ABI of libgyre.so and libgyre_gradsync.so as lines of text, and its changes since the record.

    abi.py check RECORD HEADERS LIBRARY...   what differs from the record; exit code 1 if anything
    abi.py write RECORD HEADERS LIBRARY...   records what was appended, or all of a new SOVERSION

A program that was linked with a library has to run with each later one of the same SOVERSION. So
within one SOVERSION an ABI only grows: functions, constants and enumerators may be added, and
members at the end of a struct that begins with its own size. All else needs a new SOVERSION.

Symbols come from the libraries, types from the headers' texts, and sizes, offsets and values from a
program that the C compiler makes of them.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

SELF = "tools/package/abi.py"
RECORDING = (f"python3 {SELF} write tools/package/abi.txt include/gyre build/lib/api/libgyre.so "
             "build/lib/gradsync/libgyre_gradsync.so")
# They say what a header is, not what a program relies on.
IGNORED_MACROS = re.compile(r"GYRE_(MAJOR|MINOR|PATCH|VERSION_CODE|\w*INITIALIZER|API|\w*H_?)$")
# How many there are: it grows with what is appended.
COUNTS = re.compile(r"enumerator \w+\.gyre(Num\w+) ")
REMEDY = ("Take the change back, or only append. Else raise SOVERSION (gyre_soversion in\n"
          f"meson.build) and record the new ABI:\n{RECORDING}")


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def squeezed(text):
    return re.sub(r"\s*([*,()\[\]])\s*", r"\1", " ".join(text.split()))


def parameter_type(text):
    """A parameter without its name: `const int*devlist` is `const int*`."""
    text = squeezed(text)
    if "(" in text:
        return re.sub(r"\(\*\w+\)", "(*)", text)
    named = re.match(r"(.*[*\s])\w+((?:\[\w*\])*)$", text)
    return (named.group(1).strip() + named.group(2)) if named else text


def split_parameters(text):
    parts, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


class Headers:
    """What headers declare, by their texts alone."""

    def __init__(self, folder):
        self.folder = folder
        self.names = sorted(name for name in os.listdir(folder) if name.endswith(".h"))
        self.structs, self.enums, self.functions = {}, {}, {}
        self.macros, self.types = [], []
        for name in self.names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                self.read(without_comments(file.read()))

    def read(self, text):
        self.macros += [name for name in re.findall(r"^#define (GYRE_\w+) +\S", text, re.M)
                        if not IGNORED_MACROS.match(name)]
        text = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)
        for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.S):
            self.structs[name] = [self.member(one) for one in self.declarations(body)]
        for typed, body, name in re.findall(r"(typedef )?\benum \{(.*?)\} ?(\w*);", text, re.S):
            self.enums.setdefault(name if typed else "int", []).extend(
                re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip()))
        for kind, name in re.findall(r"typedef ([^{};()]+?)(\w+);", text):
            self.types.append(f"type {name}: {squeezed(kind)}")
        for kind, name, parameters in re.findall(
                r"typedef ([^{};()]+?)\(\*(\w+)\)\(([^;()]*)\);", text):
            self.types.append(f"type {name}: {squeezed(kind)}(*)({self.types_of(parameters)})")
        for declared, name, parameters in re.findall(
                r"GYRE_API ([^;()]*?)(\w+)\(((?:[^;()]|\([^;()]*\))*)\);", text):
            self.functions[name] = f"{squeezed(declared)} {name}({self.types_of(parameters)})"

    @staticmethod
    def types_of(parameters):
        return ",".join(parameter_type(one) for one in split_parameters(parameters))

    @staticmethod
    def declarations(body):
        """One a member: `int a, b;` are two."""
        for one in filter(None, (squeezed(part) for part in body.split(";"))):
            parts = split_parameters(one)
            kind = re.match(r"(.*[ *])\w+", parts[0])
            yield parts[0]
            for name in parts[1:]:
                yield kind.group(1) + name

    @staticmethod
    def member(text):
        pointer = re.match(r"(.*)\(\*(\w+)\)\((.*)\)$", text)
        if pointer:
            kinds = Headers.types_of(pointer.group(3))
            return pointer.group(2), f"{pointer.group(1)}(*)({kinds})"
        plain = re.match(r"(.*[ *])(\w+)((?:\[\w+\])*)$", text)
        return plain.group(2), plain.group(1).strip() + plain.group(3)

    def program(self):
        """C that prints the lines which only a compiler knows."""
        lines = [f'#include "{name}"' for name in self.names]
        lines += ["#include <stdio.h>", "int main(void) {"]

        def show(form, *values):
            lines.append(f'printf("{form}\\n", {", ".join(values)});')

        for name, members in sorted(self.structs.items()):
            show(f"struct {name} of %zu bytes", f"sizeof({name})")
            for member, kind in members:
                show(f"member {name}.{member} at %zu, %zu bytes: {kind}",
                     f"offsetof({name}, {member})", f"sizeof((({name}*)0)->{member})")
        for name, members in sorted(self.enums.items()):
            for member in members:
                show(f"enumerator {name}.{member} = %lld", f"(long long){member}")
        for name in sorted(self.macros):
            lines.append(f'printf("constant {name} = "); SHOW({name});')
        return SHOW + "\n".join([*lines, "return 0;", "}", ""])


SHOW = """static void show_number(long long value);
static void show_text(const char* value);
static void show_null(const void* value);
#define SHOW(x) _Generic((x), char*: show_text, void*: show_null, default: show_number)(x)
#include <stdio.h>
static void show_number(long long value) { printf("%lld\\n", value); }
static void show_text(const char* value) { printf("\\"%s\\"\\n", value); }
static void show_null(const void* value) { printf("%s\\n", value == NULL ? "NULL" : "an address"); }
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"abi.py: {' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def of_headers(folder):
    headers = Headers(folder)
    with tempfile.TemporaryDirectory() as place:
        source, program = os.path.join(place, "abi.c"), os.path.join(place, "abi")
        with open(source, "w", encoding="utf-8") as file:
            file.write(headers.program())
        run(*shlex.split(os.environ.get("CC", "cc")), "-std=c11", f"-I{folder}",
            f"-I{os.path.dirname(os.path.abspath(folder))}", source, "-o", program)
        lines = run(program).splitlines()
    return lines + headers.types, headers.functions


def of_libraries(paths, functions):
    """The names that programs are linked with, and the symbols: a function with its declaration."""
    lines = []
    for path in paths:
        soname = re.search(r"SONAME\s+(\S+)", run("objdump", "-p", path)).group(1)
        library = re.sub(r"\.so\..*", "", soname)
        lines.append(f"soname {soname}")
        for symbol in run("nm", "--dynamic", "--defined-only", "--format=posix", path).splitlines():
            name = symbol.split()[0].split("@")[0]
            lines.append(f"symbol {library} {functions.get(name, name)}")
    return lines


def read_abi(headers, libraries):
    lines, functions = of_headers(headers)
    return sorted({*lines, *of_libraries(libraries, functions)})


def key(line):
    """What a line is about: two lines of one key are one thing that changed."""
    if line.startswith("symbol"):
        _, library, declared = line.split(" ", 2)
        name = re.search(r"(\w+)(?:\(.*)?$", declared).group(1)
        return f"symbol {library} {name}"
    if line.startswith("soname"):
        return line.split(".so.")[0]
    return " ".join(line.split()[:2]).rstrip(":")


def struct_of(line):
    found = re.match(r"(?:struct (\w+) of|member (\w+)\.)", line)
    return found and (found.group(1) or found.group(2))


def grown_structs(old, new):
    """Structs that begin with their size, have all their members where they were, and new ones
    beyond their old end. A program's `size` then says which of them it knows."""
    grown = set()
    for name in {struct_of(line) for line in old} - {None}:
        def members(lines, name=name):
            return {line for line in lines if line.startswith(f"member {name}.")}

        def size(lines, name=name):
            (line,) = [one for one in lines if one.startswith(f"struct {name} of")] or [" of 0 "]
            return int(line.split(" of ")[1].split()[0])

        added = members(new) - members(old)
        if members(old) <= members(new) and f"member {name}.size at 0, 8 bytes: size_t" in old \
                and all(int(re.search(r" at (\d+),", one).group(1)) >= size(old) for one in added):
            grown.add(name)
    return grown


def compare(old, new):
    """What was broken, and what was only appended: two lists of texts."""
    before, after = {key(line): line for line in old}, {key(line): line for line in new}
    grown = grown_structs(set(old), set(new))
    broken, appended = [], []
    for what in sorted({*before, *after}):
        was, now = before.get(what), after.get(what)
        if was == now:
            continue
        if was is None:
            inside = struct_of(now)
            is_new = inside is None or f"struct {inside}" not in before or inside in grown
            (appended if is_new else broken).append(f"  + {now}")
        elif now is not None and (was.startswith("struct ") and struct_of(was) in grown or
                                  COUNTS.match(was) and value(now) > value(was)):
            appended.append(f"  {was}\n    is now: {now}")
        else:
            broken.append(f"  {was}\n    is now: {now or 'gone'}")
    return broken, appended


def value(line):
    return int(line.rsplit(" ", 1)[1])


def sonames(lines):
    return {line for line in lines if line.startswith("soname")}


def judge(old, new):
    """What is wrong with the record; empty: nothing."""
    broken, appended = compare(old, new)
    if sonames(old) != sonames(new):
        return f"There is a new SOVERSION, and the record is of the old one:\n{RECORDING}"
    if broken:
        return "The ABI is broken. Programs that were linked before would misbehave:\n" + \
            "\n".join(broken) + "\n" + REMEDY
    if appended:
        return "The ABI has grown, which is allowed:\n" + "\n".join(appended) + \
            f"\nRecord it:\n{RECORDING}"
    return ""


def main(arguments):
    if len(arguments) < 4 or arguments[0] not in ("check", "write"):
        sys.exit(__doc__)
    command, record, headers, *libraries = arguments
    new = read_abi(headers, libraries)
    old = []
    if os.path.exists(record):
        with open(record, encoding="utf-8") as file:
            old = [line for line in file.read().splitlines() if not line.startswith("#")]
    wrong = judge(old, new)
    if command == "check" or (old and sonames(old) == sonames(new) and compare(old, new)[0]):
        sys.exit(wrong or 0)
    with open(record, "w", encoding="utf-8") as file:
        file.write("\n".join([f"# The ABI of this SOVERSION, as {SELF} writes and checks it.", *new,
                              ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
