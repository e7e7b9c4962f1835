"""Builds Gyre's Debian packages, those of each release in its own root, and runs lintian."""

import argparse
import email.utils
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
from wheels import version  # noqa: E402

# Their PyTorch is new enough for the backend.
WITH_TORCH = ("debian-13", "debian-testing")
DETAILS = """\
releases: debian-12, debian-13, debian-testing; all of them if none is named.

Packages: libgyre0, libgyre-dev and gyre-tools; and python3-gyre-torch where the release's PyTorch
is new enough, from Debian 13 on. They are left in dist/RELEASE. debootstrap
makes the roots in ~/.cache/gyre/roots, and that needs root. Exit code: 0 if all was
built and lintian found neither an error nor a warning; 77 if roots cannot be made here.

examples:
  tools/dev packages debian-13
"""


def for_release(text, name):
    """debian/control with or without what PyTorch needs."""
    lines = text.splitlines(keepends=True)
    if name in WITH_TORCH:
        return "".join(line.replace("@torch@", "", 1) for line in lines)
    return "".join(line for line in lines if not line.startswith("@torch@"))


def changelog(name):
    """Newer releases get newer versions, so that an upgrade of the system upgrades these."""
    suffix = {"debian-12": "~deb12u1", "debian-13": "~deb13u1"}.get(name, "")
    maker = re.search(r"^Maintainer: (.*)$", control_text(), re.M)[1]
    return f"gyre ({version()}{suffix}) unstable; urgency=medium\n\n" \
           f"  * See CHANGELOG.md.\n\n -- {maker}  {email.utils.formatdate(usegmt=False)}\n"


def control_text():
    return (TOP / "tools/package/debian/control").read_text(encoding="utf-8")


class PackageRoot(Root):
    def __init__(self, name, said):
        super().__init__(name, said)
        # Not that of `tools/dev distributions`, which replaces the source at any time.
        self.folder = os.path.join(distributions.ROOTS, f"{name}-packages")
        self.log = self.folder + ".txt"
        self.out = TOP / "dist" / name
        # debhelper takes HOME away, where ccache would keep what it knows.
        self.variables["CCACHE_DIR"] = "/root/.cache/ccache"

    def copy_source(self):
        super().copy_source()
        source = pathlib.Path(self.folder) / "gyre"
        debian = source / "debian"
        shutil.copytree(TOP / "tools/package/debian", debian)
        (debian / "control").write_text(for_release(control_text(), self.name), encoding="utf-8")
        (debian / "changelog").write_text(changelog(self.name), encoding="utf-8")
        if self.name not in WITH_TORCH:
            (debian / "python3-gyre-torch.install").unlink()

    def build(self):
        """What was built, in words; raises Failed."""
        began = time.monotonic()
        os.makedirs(distributions.ROOTS, exist_ok=True)
        open(self.log, "w", encoding="utf-8").close()
        self.make()
        self.copy_source()
        self.install()
        minutes = self.said.minutes
        self.demand("what the packages are built with", minutes, self.inside(
            "sh", "-ec", "apt-get install -q -y --no-install-recommends lintian build-essential; "
            "apt-get build-dep -q -y --no-install-recommends ./"))
        self.demand("packages", minutes, self.inside(
            "sh", "-ec", "rm -f ../*.deb ../*.changes; exec dpkg-buildpackage -b -us -uc "
            f"-j{self.said.jobs}"))
        self.check("lintian", ["lintian", "--fail-on", "error,warning", "--allow-root"])
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        packages = sorted(path for path in pathlib.Path(self.folder).glob("*.deb")
                          if "-dbgsym_" not in path.name)
        for package in packages:
            shutil.copy(package, self.out)
        return f"{len(packages)} packages in {self.out}, lintian clean; " \
               f"{time.monotonic() - began:.0f} s"

    def check(self, what, command):
        """On the changes file, which lists the packages."""
        self.demand(what, 10, self.inside("sh", "-ec", 'exec "$@" ../*.changes', "sh", *command))


def read_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="tools/dev packages", description=__doc__, epilog=DETAILS,
        usage="%(prog)s [RELEASE ..] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="RELEASE", help=argparse.SUPPRESS)
    parser.add_argument("--mirror", metavar="URL", help="where Debian's packages come from "
                        "(default: as this machine's apt has it)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)),
                        help="compilations at once (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60,
                        help="limit for a build (default: %(default)s)")
    said = parser.parse_args(arguments)
    said.cxx = None
    said.names = said.names or list(SUITES)
    for name in said.names:
        if name not in SUITES:
            parser.error(f"there is no {name}; there are {', '.join(SUITES)}")
    return said


def main(arguments):
    said = read_arguments(arguments)
    if why := distributions.why_not():
        print(f"packages: skipped: {why}", file=sys.stderr)
        return SKIPPED
    code = 0
    for name in said.names:
        try:
            print(f"{name:15} {PackageRoot(name, said).build()}", flush=True)
        except Failed as failure:
            print(f"{name:15} FAILED: {failure}", flush=True)
            code = 1
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("packages: ended by a signal"))
    sys.exit(main(sys.argv[1:]))
