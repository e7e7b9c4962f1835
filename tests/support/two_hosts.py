"""Hosts on this machine: two, joined by a cable that can be cut, or several around a switch. Each
has a network, a name, a boot id and processes of its own. They are unnamed namespaces, each held by
one process: when it ends, the kernel removes everything. Needs root."""
import json
import os
import shutil
import subprocess
import tempfile
import time

import shaping

INTERFACE = "cable"
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
PATIENCE_S = 20
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"
NAMESPACES = ["--net", "--uts", "--mount", "--pid"]


def why_not():
    """Why they cannot be made here, or nothing."""
    if os.geteuid() != 0:
        return "it takes root to make network namespaces"
    for program in ("unshare", "nsenter", "ip"):
        if not shutil.which(program):
            return f"there is no {program}"
    tried = subprocess.run(["unshare", *NAMESPACES, "--fork", "--mount-proc", "true"],
                           capture_output=True, text=True, timeout=PATIENCE_S)
    return tried.stderr.strip() if tried.returncode != 0 else None


def wait_all(processes, deadline):
    """Until all have ended, or one badly, or time.monotonic() is past the deadline. Their exit
    codes; None of one that runs on: it ends with its host."""
    while any(process.poll() is None for process in processes):
        if any(process.returncode for process in processes) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return [process.returncode for process in processes]


class Hosts:
    def __init__(self, names, lifetime_s):
        self.lifetime_s = lifetime_s  # even if nobody ends them
        self.folder = tempfile.mkdtemp()
        self.secret = os.path.join(self.folder, "secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w",
                  encoding="ascii") as file:
            file.write(os.urandom(32).hex())
        self.holders = []
        try:
            for name in names:
                self.holders.append(self.make(name))
            self.lay_cables()
        except BaseException:
            self.end()
            raise

    def make(self, name):
        boot_id = os.path.join(self.folder, name)
        with open(boot_id, "w", encoding="ascii") as file:
            file.write(f"{name}\n")
        script = (f"hostname {name} && mount --bind {boot_id} /proc/sys/kernel/random/boot_id && "
                  f"ip link set lo up && echo ready && exec sleep {self.lifetime_s}")
        holder = subprocess.Popen(["unshare", *NAMESPACES, "--fork", "--kill-child",
                                   "--mount-proc", "sh", "-c", script], text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if holder.stdout.readline() != "ready\n":
            holder.kill()
            raise OSError(f"host {name} could not be made")
        return holder

    def first_process(self, host):
        """Of the host, as this machine knows it."""
        pid = self.holders[host].pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return file.read().split()[0]

    def on(self, host, command):
        """The command as it runs there."""
        enter = ["nsenter", "-t", self.first_process(host), *NAMESPACES, "--"]
        return [*enter, *command]

    def environment(self, rank, size, local_rank=0, local_size=1):
        """Of a rank whose job meets at host 0; no GYRE_ variable of this process is in it."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
        return kept | {"GYRE_RANK": str(rank), "GYRE_SIZE": str(size),
                       "GYRE_LOCAL_RANK": str(local_rank), "GYRE_LOCAL_SIZE": str(local_size),
                       "GYRE_SOCKET_IFNAME": INTERFACE,
                       "GYRE_RENDEZVOUS_ADDRESS": f"{self.addresses[0]}:29777",
                       "GYRE_RENDEZVOUS_SECRET_FILE": self.secret}

    def sent_bytes(self, host):
        """By the count of its end of the cable."""
        done = subprocess.run(self.on(host, ["ip", "-s", "-j", "link", "show", INTERFACE]),
                              capture_output=True, text=True, check=True, timeout=PATIENCE_S)
        return json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"]

    def congestion(self):
        """TCP's congestion control there."""
        done = subprocess.run(self.on(0, ["cat", CONGESTION]), capture_output=True, text=True,
                              check=True, timeout=PATIENCE_S)
        return done.stdout.strip()

    def set_congestion(self, name):
        for host in range(len(self.addresses)):
            self.call(self.on(host, ["sh", "-c", 'echo "$1" > "$2"', "sh", name, CONGESTION]))

    def lay_cables(self):
        raise NotImplementedError

    @staticmethod
    def call(command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

    def end(self):
        while self.holders:
            holder = self.holders.pop()
            holder.kill()
            holder.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


class TwoHosts(Hosts):
    def __init__(self, tag, lifetime_s=300):
        self.names = [f"{tag}a", f"{tag}b"]
        self.addresses = ADDRESSES
        super().__init__(self.names, lifetime_s)

    def lay_cables(self):
        first, second = self.first_process(0), self.first_process(1)
        self.call(["ip", "link", "add", INTERFACE, "netns", first, "type", "veth", "peer", "name",
                   INTERFACE, "netns", second])
        for host, address in enumerate(ADDRESSES):
            self.call(self.on(host, ["ip", "addr", "add", f"{address}/24", "dev", INTERFACE]))
            self.call(self.on(host, ["ip", "link", "set", INTERFACE, "up"]))

    def cut(self, host):
        self.call(self.on(host, ["ip", "link", "set", INTERFACE, "down"]))


class SwitchedHosts(Hosts):
    """Each has a cable to a switch, which is one host more."""

    def __init__(self, tag, hosts, lifetime_s=300):
        self.hosts = hosts
        self.addresses = [f"10.77.0.{host + 1}" for host in range(hosts)]
        super().__init__([f"{tag}h{host}" for host in range(hosts)] + [f"{tag}s"], lifetime_s)

    def lay_cables(self):
        switch = self.hosts
        self.ip(switch, "link", "add", "switch", "type", "bridge")
        self.ip(switch, "link", "set", "switch", "up")
        for host, address in enumerate(self.addresses):
            self.lay_cable(host)
            self.ip(switch, "link", "set", self.port(host), "master", "switch", "up")
            self.ip(host, "addr", "add", f"{address}/24", "dev", INTERFACE)
            self.ip(host, "link", "set", INTERFACE, "up")

    def shape(self, rates):
        """Each host's cable carries its rate, in both directions; one rate is for all."""
        for host, rate in enumerate(rates if len(rates) > 1 else rates * self.hosts):
            for place, device in ((host, INTERFACE), (self.hosts, self.port(host))):
                self.call(self.on(place, ["tc", "qdisc", "replace", "dev", device, "root",
                                          *shaping.bucket(rate)]))

    def lay_cable(self, host):
        """Between a host and the switch."""
        self.call(["ip", "link", "add", INTERFACE, "netns", self.first_process(host), "type",
                   "veth", "peer", "name", self.port(host), "netns",
                   self.first_process(self.hosts)])

    @staticmethod
    def port(host):
        """The switch's end of a host's cable."""
        return f"port{host}"

    def ip(self, host, *words):
        self.call(self.on(host, ["ip", *words]))
