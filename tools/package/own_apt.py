"""An apt of one's own, in a folder: it knows one release of Debian, and installs nothing."""

import os
import shutil
import subprocess
import sys

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def run(*command, environment=None, capture=False, folder=None):
    """Runs it, or ends with what it said."""
    ran = subprocess.run([str(word) for word in command], text=True, check=False,
                         env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{ran.stdout[-4000:]}")
    return ran.stdout if capture else None


def mirror(kind=""):
    """The Debian mirror that this machine's apt is set up with, or that of security updates; empty:
    none."""
    answer = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)",
                 "Created-By: Packages", capture=True)
    for line in answer.splitlines():
        origin, _, uri = line.partition(" ")
        if origin == "Debian" and ("security" in uri) == (kind == "security"):
            return uri
    return ""


class OwnApt:
    """`kinds`: deb for packages, deb-src for sources."""

    def __init__(self, folder, release, kinds=("deb",)):
        self.folder, self.release, self.kinds = folder, release, kinds

    def set_up(self, source, updates=""):
        shutil.rmtree(self.folder, ignore_errors=True)
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text("".join(
            f"{kind} [signed-by={KEYS}] {place} main\n" for kind in self.kinds
            for place in [f"{source} {self.release}",
                          *([f"{updates} {self.release}-security"] if updates else [])]))
        (self.folder / "apt.conf").write_text(f"""
Dir::Etc::sourcelist "{self.folder}/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "{self.folder}/state";
Dir::State::status "{self.folder}/status";
Dir::Cache "{self.folder}/cache";
APT::Install-Recommends "false";
APT::Sandbox::User "";
""")
        self.call("update", "-q")

    def call(self, *arguments, folder=None, capture=False):
        """`folder`: where it runs, and leaves what it downloads."""
        return run("apt-get", *arguments, folder=folder, capture=capture,
                   environment={**os.environ, "APT_CONFIG": str(self.folder / "apt.conf")})

    def archives(self):
        return sorted((self.folder / "cache/archives").glob("*.deb"))
