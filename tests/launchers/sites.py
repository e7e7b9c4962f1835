"""Two hosts with the names and the wiring that launchers expect: each knows the other by name, and
an agent in ssh's place takes commands there. Needs root, as two_hosts does."""
import os
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import two_hosts  # noqa: E402

NAMES = ["host0", "host1"]
# ssh's words: options, the host, and a command for a shell there.
AGENT = """#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift; done
host=$1
shift
case $host in
{cases}*) echo "no host $host" >&2; exit 255 ;;
esac
exec nsenter -t $pid {namespaces} -- sh -c "cd {folder} && $*"
"""
# A launcher on host0 runs with that host's network and names, but sees all processes, so that its
# agent finds the other host.
LAUNCHER = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && mount --bind "$2" /etc/hosts && ' \
           'cd "$3" && shift 3 && exec "$@"'


class Site(two_hosts.TwoHosts):
    """Its folder is that of the jobs, on both hosts."""

    def __init__(self, lifetime_s=300):
        super().__init__("", lifetime_s)
        self.agent = os.path.join(self.folder, "agent")
        cases = "".join(f"{name}|{address}) pid={self.first_process(host)} ;;\n" for
                        host, (name, address) in enumerate(zip(NAMES, two_hosts.ADDRESSES)))
        self.write("agent", AGENT.format(cases=cases, folder=self.folder,
                                         namespaces=" ".join(two_hosts.NAMESPACES)), 0o755)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w",
                  encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def make(self, _):
        host = len(self.holders)
        os.chmod(self.folder, 0o755)
        hosts = self.write("hosts", "127.0.0.1 localhost\n" + "".join(
            f"{address} {name} train-{index}.train\n"  # the second: of pods
            for index, (name, address) in enumerate(zip(NAMES, two_hosts.ADDRESSES))))
        holder = super().make(NAMES[host])
        self.holders.append(holder)
        self.call(self.on(host, ["mount", "--bind", hosts, "/etc/hosts"]))
        return self.holders.pop()

    def from_host0(self, command):
        """The command as a launcher runs it there, which starts what it starts on both."""
        boot_id, hosts = (os.path.join(self.folder, name) for name in (NAMES[0], "hosts"))
        return ["nsenter", "-t", self.first_process(0), "--net", "--uts", "--", "unshare",
                "--mount", "sh", "-c", LAUNCHER, "sh", boot_id, hosts, self.folder, *command]

    def on_both(self, script, environment, patience_s):
        """What a script, given each host's number, says on both: [(exit code, output)]."""
        started = [subprocess.Popen(self.on(host, ["sh", "-c", f"cd {shlex.quote(self.folder)}\n"
                                                   + script(host)]), env=environment, text=True,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT) for host in (0, 1)]
        try:
            said = [one.communicate(timeout=patience_s)[0] for one in started]
        finally:
            for one in started:
                one.kill()
        return [(one.returncode, text) for one, text in zip(started, said)]
