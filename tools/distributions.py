"""Builds Gyre and runs its default tests on other releases of Debian, each in a root of its own."""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests", "house"))
import tree  # noqa: E402

ROOTS = os.path.join(os.path.expanduser("~"), ".cache", "gyre", "roots")
SUITES = {"debian-12": "bookworm", "debian-13": "trixie", "debian-testing": "testing"}
USUAL_MIRROR = "http://deb.debian.org/debian"
SKIPPED = 77  # as Meson takes it
MINUTES_FOR_PACKAGES = 30

DETAILS = """\
distributions: debian-12, debian-13, debian-testing; all of them if none is named. Ubuntu 24.04 has
no root here and is unproven.

A root is made by debootstrap in ~/.cache/gyre/roots and kept; later calls upgrade it. The source is
copied into it, `tools/dev build` and `tools/dev test` run there from a new build folder, and ccache
remembers. Mounts and processes are in namespaces that end with each step, so none is left. This
needs root, and debootstrap. Exit code: 0 if all was built without a warning and no test failed;
77 if roots cannot be made here.

examples:
  tools/dev distributions debian-13
  tools/dev distributions debian-13 --cxx clang++-19 --build-only
  tools/dev distributions debian-testing -- --suite unit plans
"""

# The machine's own files are out of reach inside, but for its devices. A root that were only
# chrooted to could make no user namespaces.
ENTER = """
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
pivot_root . mnt
exec chroot . sh -ec 'umount -l /mnt; cd /gyre; exec "$@"' sh "$@"
"""


class Failed(Exception):
    """A step that did not end well, in words."""


def read_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="tools/dev distributions", description=__doc__, epilog=DETAILS,
        usage="%(prog)s [NAME ..] [options] [-- arguments of meson test]",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--cxx", metavar="COMPILER", help="g++-13, clang++-19, ...; its package is "
                        "installed in the root (default: the release's g++)")
    parser.add_argument("--build-only", action="store_true", help="build everything, run no test")
    parser.add_argument("--mirror", metavar="URL", help="where packages come from "
                        f"(default: as this machine's apt has it, else {USUAL_MIRROR})")
    parser.add_argument("--minutes", type=float, default=120,
                        help="limit for a build, and for a run of tests (default: %(default)s)")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    said = parser.parse_args(arguments[:end])
    said.test_arguments = arguments[end + 1:]
    said.names = said.names or list(SUITES)
    for name in said.names:
        if name not in SUITES:
            parser.error(f"there is no {name}; there are {', '.join(SUITES)}")
    return said


def why_not():
    """What keeps this machine from making roots; empty if nothing."""
    for program in ("debootstrap", "unshare", "pivot_root"):
        if shutil.which(program) is None:
            return f"there is no {program}; Debian and its kin have it (debootstrap, util-linux)"
    return "" if os.geteuid() == 0 else "roots are made by root: sudo tools/dev distributions"


def asked(*command):
    """What a program of this machine prints; empty where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def mirror_of_apt(targets):
    """The mirror of Debian among what `apt-get indextargets` lists."""
    return next((line.rstrip("/") for line in targets.splitlines()
                 if line.rstrip("/").endswith("/debian")), USUAL_MIRROR)


def proxies():
    """As the environment and this machine's apt have them."""
    found = {name: os.environ[name] for name in ("http_proxy", "https_proxy", "no_proxy")
             if name in os.environ}
    of_apt = asked("apt-config", "shell", "P", "Acquire::http::Proxy")
    proxy = re.search(r"^P='(.*)'$", of_apt, re.M)
    return {**({"http_proxy": proxy.group(1)} if proxy else {}), **found}


def dates_of_apt(settings):
    """What `apt-config dump` says of how old lists of packages may be. If this machine takes them
    from a mirror that stands still, so do the roots. Signatures count anyway."""
    return "".join(re.findall(r"^Acquire::(?:Check-Valid-Until|Check-Date) .*\n", settings, re.M))


class Root:
    def __init__(self, name, said):
        self.name, self.said = name, said
        self.folder = os.path.join(ROOTS, name)
        self.log = self.folder + ".txt"
        self.variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                          "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **proxies()}

    def call(self, what, minutes, command):
        """Runs a command with mounts and processes of its own: its exit code, and what it wrote to
        the log."""
        print(f"== {self.name}: {what} ({self.log})", flush=True)
        with open(self.log, "a+", encoding="utf-8", errors="replace") as log:
            begin = log.seek(0, os.SEEK_END)
            try:
                code = subprocess.run(
                    ["unshare", "--mount", "--pid", "--fork", "--kill-child", *command],
                    env=self.variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    timeout=60 * minutes, check=False).returncode
            except subprocess.TimeoutExpired:
                code = f"none after {minutes:g} minutes"
            log.seek(begin)
            return code, log.read()

    def demand(self, what, minutes, command):
        code, text = self.call(what, minutes, command)
        if code != 0:
            raise Failed(f"{what}: exit code {code}\n" + "\n".join(text.splitlines()[-20:]))
        return text

    def inside(self, *command):
        return ["sh", "-ec", ENTER, self.folder, *command]

    def make(self):
        if os.path.isdir(self.folder):
            return
        part = self.folder + ".part"
        shutil.rmtree(part, ignore_errors=True)
        mirror = self.said.mirror or mirror_of_apt(
            asked("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"))
        self.demand("a root", MINUTES_FOR_PACKAGES,
                    ["debootstrap", "--variant=minbase", SUITES[self.name], part, mirror])
        os.rename(part, self.folder)

    def copy_source(self):
        target = os.path.join(self.folder, "gyre")
        shutil.rmtree(target, ignore_errors=True)
        os.mkdir(target)
        for path in tree.files(SOURCE):
            os.makedirs(os.path.dirname(os.path.join(target, path)), exist_ok=True)
            shutil.copy2(os.path.join(SOURCE, path), os.path.join(target, path))

    def install(self):
        packages = ["ccache"]
        if self.said.cxx:
            self.variables["CXX"] = self.said.cxx
            self.variables["CC"] = self.said.cxx.replace("clang++", "clang").replace("g++", "gcc")
            packages.append(self.said.cxx.replace("clang++", "clang"))
        with open(os.path.join(self.folder, "etc", "apt", "apt.conf.d", "90-as-outside"), "w",
                  encoding="utf-8") as settings:
            settings.write(dates_of_apt(asked("apt-config", "dump")))
        self.demand("packages", MINUTES_FOR_PACKAGES, self.inside(
            "sh", "-ec", "apt-get update -q; apt-get full-upgrade -q -y; "
            'apt-get install -q -y --no-install-recommends "$@"', "sh", *packages))

    def run(self):
        """What came of it, in a line; raises Failed."""
        began = time.monotonic()
        open(self.log, "w", encoding="utf-8").close()
        self.make()
        self.copy_source()
        self.install()
        text = self.demand("build", self.said.minutes, self.inside("tools/dev", "build"))
        results = [made_with(text), built(text)]
        if not self.said.build_only:
            code, text = self.call("tests", self.said.minutes,
                                   self.inside("tools/dev", "test", *self.said.test_arguments))
            results.append(tested(code, text))
        return "; ".join(results) + f"; {time.monotonic() - began:.0f} s"


def made_with(text):
    """Compiler and Catch2, from what Meson says as it configures."""
    compiler = re.search(r"C\+\+ compiler for the host machine: (?:\S*ccache )?(\S+) \((.*?) \"",
                         text)
    catch = re.search(r"dependency catch2 found: YES (\S+)", text)
    return f"{' '.join(compiler.groups()) if compiler else 'compiler unknown'}, " \
           f"Catch2 {catch.group(1) if catch else 'unknown'}"


def built(text):
    warnings = sorted(set(re.findall(r"^\S+:\d+:\d+: warning: .*", text, re.M)))
    if warnings:
        raise Failed(f"built with {len(warnings)} warnings\n" + "\n".join(warnings[:20]))
    return "built"


def tested(code, text):
    counts = {name: int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1])
              for name in ("Ok", "Fail", "Skipped", "Timeout")
              if re.search(rf"^{name}:\s+\d+", text, re.M)}
    failed = sorted(set(re.findall(r"^\s*\d+/\d+ .*[ :](\S+)\s+(?:FAIL|TIMEOUT|ERROR)\b", text,
                                   re.M)))
    said = f"{counts.get('Ok', 0)} tests passed, {counts.get('Skipped', 0)} skipped"
    if code != 0 or failed:
        raise Failed(f"{said}; exit code {code}; failed: {' '.join(failed) or 'none'}")
    return said


def main(arguments):
    said = read_arguments(arguments)
    if why := why_not():
        print(f"distributions: skipped: {why}", file=sys.stderr)
        return SKIPPED
    os.makedirs(ROOTS, exist_ok=True)
    rows, code = [], 0
    for name in said.names:
        try:
            rows.append(f"{name:15} {Root(name, said).run()}")
        except Failed as failure:
            rows.append(f"{name:15} FAILED: {failure}")
            code = 1
        print(rows[-1], flush=True)
    if len(rows) > 1:
        print("\n".join(["", *(row.split("\n")[0] for row in rows)]))
    return code


if __name__ == "__main__":
    # What subprocess.run() waits for is killed on the way out, and what is within with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("distributions: ended by a signal"))
    sys.exit(main(sys.argv[1:]))
