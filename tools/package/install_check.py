"""Runs docs/install.md in empty systems: its marked commands, unchanged, each timed."""

import argparse
import os
import pathlib
import re
import shutil
import signal
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tools"))
import distributions  # noqa: E402
from distributions import SKIPPED, SUITES, Failed, Root  # noqa: E402

PAGE = "docs/install.md"
MARK = re.compile(r"^<!-- in an empty system: (\S+), on (.*?) -->\n\n((?: {4}.*\n)+)", re.M)
# What a way's commands have to print, and how often.
COMPILES = "compiling for PyTorch"
PROOFS = {"pip": {"in the last": 2, COMPILES: 0}, "compiled": {"in the last": 1, COMPILES: 1},
          "apt": {"4 ranks are here": 4}, "torch": {"in the last": 1},
          "sdist": {"Out of bounds values : 0 OK": 1, "Successfully built": 1}}
AUTHORITIES = "/etc/authorities-of-outside.crt"
DETAILS = """\
releases: debian-12, debian-13, debian-testing; all of them if none is named.

An empty system is what `debootstrap --variant=minbase` makes; each way gets a new copy, with dist/,
README's program and docs/examples. So call tools/dev wheels and tools/dev packages before. A way
without its files in dist/ fails. Exit code: 0 if all worked; 77 if roots cannot be made here.

examples:
  tools/dev install-check debian-13
  tools/dev install-check debian-12 --way pip
"""


def blocks(text):
    """{way: (releases, commands)} of a page's marked blocks."""
    joined = re.sub(r" \\\n +", " ", text)
    return {way: (releases.split(), [line[4:] for line in block.splitlines()])
            for way, releases, block in MARK.findall(joined)}


def script(commands):
    """Says before each command when it began, so that the log has their times."""
    said = ["set -euo pipefail"]
    for number, command in enumerate(commands):
        said += [f'echo "@@ {number} $EPOCHREALTIME"', command]
    return "\n".join([*said, f'echo "@@ {len(commands)} $EPOCHREALTIME"'])


def times(text):
    """Seconds of each command that ended well."""
    begun = [float(moment) for moment in re.findall(r"^@@ \d+ ([\d.]+)$", text, re.M)]
    return [after - before for before, after in zip(begun, begun[1:])]


def program_of_readme():
    text = (TOP / "README.md").read_text(encoding="utf-8")
    return re.search(r"^## A program\n\n```c\n(.*?)^```$", text, re.M | re.S)[1]


def settings_of_pip():
    """As the environment has them, but for paths of this machine."""
    names = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")
    return {name: os.environ[name] for name in names if name in os.environ}


class EmptyRoot(Root):
    """One for each release is kept as debootstrap left it, and copied."""

    def __init__(self, name, way, said):
        super().__init__(name, said)
        self.way = way
        self.kept = os.path.join(distributions.ROOTS, f"{name}-empty")
        self.log = os.path.join(distributions.ROOTS, f"{name}-{way}.txt")
        self.variables.update(settings_of_pip())

    def prepare(self):
        self.folder = self.kept
        self.make()
        self.folder = os.path.join(distributions.ROOTS, f"{self.name}-{self.way}")
        self.forget()
        self.demand("a copy", distributions.MINUTES_FOR_PACKAGES,
                    ["cp", "-a", "--reflink=auto", self.kept, self.folder])
        etc = pathlib.Path(self.folder) / "etc"
        (etc / "hosts").write_text("127.0.0.1 localhost\n127.0.1.1 "
                                   f"{os.uname().nodename}\n", encoding="utf-8")
        (etc / "apt/apt.conf.d/90-as-outside").write_text(
            distributions.dates_of_apt(distributions.asked("apt-config", "dump")) +
            'APT::Get::Assume-Yes "true";\n', encoding="utf-8")
        if "PIP_CERT" in os.environ:
            shutil.copy(os.environ["PIP_CERT"], self.folder + AUTHORITIES)
            self.variables["PIP_CERT"] = AUTHORITIES
        self.copy_what_users_have()

    def copy_what_users_have(self):
        target = pathlib.Path(self.folder) / "gyre"
        for path in [*TOP.glob("dist/*.*"), *TOP.glob(f"dist/{self.name}/*.deb")]:
            place = target / path.relative_to(TOP)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        shutil.copytree(TOP / "docs/examples", target / "docs/examples")
        (target / "hello.c").write_text(program_of_readme(), encoding="utf-8")

    def forget(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def check(self, commands):
        """What each command took, in lines; raises Failed."""
        open(self.log, "w", encoding="utf-8").close()
        self.prepare()
        commands = [command.replace("debian-13", self.name) for command in commands]
        began = time.monotonic()
        code, text = self.call(self.way, self.said.minutes,
                               self.inside("bash", "-c", script(commands)))
        took = times(text)
        lines = [f"  {seconds:6.1f} s  {command}" for seconds, command in zip(took, commands)]
        if code != 0:
            at = min(len(took), len(commands) - 1)
            raise Failed("\n".join([f"exit code {code}", *lines, f"  failed    {commands[at]}",
                                    *text.splitlines()[-20:]]))
        for words, wanted in PROOFS[self.way].items():
            if text.count(words) != wanted:
                raise Failed(f'"{words}" was printed {text.count(words)} times, not {wanted}')
        self.forget()
        return "\n".join([f"{len(commands)} commands, {time.monotonic() - began:.0f} s", *lines])


def read_arguments(arguments, known):
    parser = argparse.ArgumentParser(
        prog="tools/dev install-check", description=__doc__, epilog=DETAILS,
        usage="%(prog)s [RELEASE ..] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="RELEASE", help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=known, action="append",
                        help="only this one (default: all of the page)")
    parser.add_argument("--mirror", metavar="URL", help="where Debian's packages come from "
                        "(default: as this machine's apt has it)")
    parser.add_argument("--minutes", type=float, default=60,
                        help="limit for a way (default: %(default)s)")
    said = parser.parse_args(arguments)
    said.names = said.names or list(SUITES)
    for name in said.names:
        if name not in SUITES:
            parser.error(f"there is no {name}; there are {', '.join(SUITES)}")
    return said


def main(arguments):
    found = blocks((TOP / PAGE).read_text(encoding="utf-8"))
    said = read_arguments(arguments, sorted(found))
    if why := distributions.why_not():
        print(f"install-check: skipped: {why}", file=sys.stderr)
        return SKIPPED
    os.makedirs(distributions.ROOTS, exist_ok=True)
    code = 0
    for name in said.names:
        for way, (releases, commands) in found.items():
            if name not in releases or (said.way and way not in said.way):
                continue
            try:
                print(f"{name}, {way}: {EmptyRoot(name, way, said).check(commands)}", flush=True)
            except Failed as failure:
                print(f"{name}, {way}: FAILED: {failure}", flush=True)
                code = 1
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("install-check: ended by a signal"))
    sys.exit(main(sys.argv[1:]))
