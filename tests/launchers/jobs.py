"""What the tests of launchers share: the lines of docs/operations.md, and a program on two hosts
that learns the same bits whoever starts it."""
import os
import re
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tools")]
import sites  # noqa: E402
import pypi  # noqa: E402

PATIENCE_S = 100
RANKS = 8
# Says where it runs, and trains. Some launchers pass no variable on.
PROGRAM = """#!/bin/sh
hostname >>{folder}/places
export GYRE_REPRODUCIBLE=1 GYRE_TCP_SECURITY=ticket
exec {root}/build/docs/examples/train
"""
# Says where it runs, and measures the job's links; none is slow because the machine is busy.
LINKS = """#!/bin/sh
hostname >>{folder}/places
exec {root}/build/tools/gyre link --slow-below 0.01
"""


def page(path="docs/operations.md"):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def documented(label):
    """The commands of docs/operations.md below the one comment that begins so, up to an empty
    line."""
    found = re.findall(rf"^    # {re.escape(label)}.*\n((?:    .+\n)+)", page(), re.M)
    if len(found) != 1:
        raise LookupError(f"docs/operations.md has {len(found)} blocks \"# {label}\"")
    return re.sub(r"^    ", "", found[0], flags=re.M)


def documented_line(start):
    """The one command of the page that begins so."""
    found = re.findall(rf"^    ({re.escape(start)}.*)$", page(), re.M)
    if len(found) != 1:
        raise LookupError(f"docs/operations.md has {len(found)} lines \"{start}\"")
    return found[0]


def meeting_at_address():
    """The page's lines that make the secret, and that each host needs then."""
    return documented_line("(umask 077;"), "\n".join(
        documented_line(f"export GYRE_RENDEZVOUS_{name}=") for name in ("ADDRESS", "SECRET_FILE"))


def program_at(*names):
    """The first program that is there, or a reason to skip."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise unittest.SkipTest(f"there is no {' or '.join(names)}")


def wheels(name):
    """The virtual environment of PyPI's package, or a reason to skip."""
    if not pypi.is_there(name):
        raise unittest.SkipTest(f"PyPI's {name} is not in {pypi.FOLDER}: tools/dev launchers "
                                "brings it")
    return pypi.place_of(name)


@unittest.skipIf(sites.two_hosts.why_not(), sites.two_hosts.why_not() or "")
class Jobs(unittest.TestCase):
    ranks = RANKS

    @classmethod
    def setUpClass(cls):
        cls.site = sites.Site()
        cls.addClassCleanup(cls.site.end)
        for name, text in (("program", PROGRAM), ("links", LINKS)):
            cls.site.write(name, text.format(folder=cls.site.folder, root=ROOT), 0o755)
        # HOME is one folder for both hosts.
        cls.variables = {"PATH": os.environ["PATH"], "HOME": cls.site.folder, "LANG": "C.UTF-8"}
        cls.digest = cls.digest_in(cls.run_by(cls.site.from_host0(
            [f"{ROOT}/build/tools/gyre", "run", "-n", str(cls.ranks), "./program"])))
        print(f"gyre run -n {cls.ranks}: parameters {cls.digest}", flush=True)

    def setUp(self):
        places = os.path.join(self.site.folder, "places")
        if os.path.exists(places):
            os.remove(places)

    @staticmethod
    def digest_in(text):
        found = re.findall(r"parameters: ([0-9a-f]{16})$", text, re.M)
        if len(found) != 1:
            raise AssertionError(f"{len(found)} digests in:\n{text}")
        return found[0]

    @classmethod
    def run_by(cls, command, variables=None, succeeds=True):
        """What the command says."""
        done = subprocess.run(["timeout", "-k", "5", str(PATIENCE_S), *command],
                              env={**cls.variables, **(variables or {})}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if (done.returncode == 0) != succeeds:
            raise AssertionError(f"exit code {done.returncode}: {command}\n{done.stdout}")
        return done.stdout

    def run_on_both(self, script, variables=None):
        """What a script for each host's number says on both."""
        said = self.site.on_both(script, {**self.variables, **(variables or {})}, PATIENCE_S)
        text = "\n".join(each for _, each in said)
        self.assertEqual([code for code, _ in said], [0, 0], text)
        return text

    @staticmethod
    def with_links(line):
        """The page's line, for gyre link in the program's place."""
        if "./program" not in line:
            raise LookupError(f"no ./program in: {line}")
        return line.replace("./program", "./links")

    def check(self, text):
        """All ranks ran where they should, and learnt the same bits."""
        self.check_places(text)
        self.assertEqual(self.digest_in(text), self.digest)

    def check_links(self, text):
        """All ranks ran where they should, and one of them tells what links there are."""
        self.check_places(text)
        self.assertEqual(len(re.findall(rf"^(?:\S+ )?{self.ranks} ranks on 2 hosts, \d+ links in",
                                        text, re.M)), 1, text)
        self.assertRegex(text, r"All \d+ links are as expected")

    def check_places(self, text):
        with open(os.path.join(self.site.folder, "places"), encoding="utf-8") as file:
            places = sorted(file.read().split())
        self.assertEqual(places, [name for name in sites.NAMES for _ in range(self.ranks // 2)],
                         text)
