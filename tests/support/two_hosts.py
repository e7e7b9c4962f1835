"""Hosts on this machine: two, joined by a cable that can be cut, or several around a switch. Each
has a network, a name, a boot id, processes and shared memory of its own. They are unnamed
namespaces, each held by one process: when it ends, the kernel removes everything. Needs root."""
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid

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


def first_child(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


class Holder:
    """A process that keeps namespaces alive."""

    def __init__(self, spaces, script, lifetime_s):
        self.popen = subprocess.Popen(
            ["unshare", *spaces, "--fork", "--kill-child", "sh", "-c",
             f"{script} && echo ready && exec sleep {lifetime_s}"],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        if self.popen.stdout.readline() != "ready\n":
            self.end()
            raise OSError(f"no namespaces: {script}")
        self.first = first_child(self.popen.pid)

    def has_ended(self):
        return self.popen.returncode is not None

    def end(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdout.close()


class Hosts:
    """Their common part; who derives from it lays the cables between them."""

    def __init__(self, names, lifetime_s):
        self.lifetime_s = lifetime_s  # even if nobody ends them
        self.holders = []
        self.folder = tempfile.mkdtemp(prefix="gyre-hosts-")
        self.secret = os.path.join(self.folder, "secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w",
                  encoding="ascii") as file:
            file.write(os.urandom(32).hex())
        try:
            for name in names:
                self.holders.append(self.make(name))
            self.lay_cables()
        except BaseException:
            self.end()
            raise

    def make(self, name):
        boot_id, sys = (os.path.join(self.folder, f"{name}{end}") for end in ("", "-sys"))
        with open(boot_id, "w", encoding="ascii") as file:
            file.write(f"{uuid.uuid5(uuid.NAMESPACE_DNS, name)}\n")
        return Holder([*NAMESPACES, "--mount-proc"],
                      f"hostname {name} && mount -t tmpfs none /dev/shm && "
                      # /sys/class/net is of who mounts it; the control groups are all hosts'.
                      f"mkdir {sys} && mount -t sysfs none {sys} && "
                      f"mount --rbind /sys/fs/cgroup {sys}/fs/cgroup && "
                      f"mount --rbind {sys} /sys && "
                      f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && "
                      "ip link set lo up", self.lifetime_s)

    def first_process(self, host):
        """Of the host, as this machine knows it."""
        return str(self.holders[host].first)

    def on(self, host, command):
        """The command as it runs there."""
        enter = ["nsenter", "-t", self.first_process(host), *NAMESPACES, "--"]
        return [*enter, *command]

    def environment(self, rank, size, local_rank=0, local_size=1):
        """Of a rank whose job meets at host 0; no GYRE_ variable of this process is in it."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
        meeting = self.addresses[0] if "." in self.addresses[0] else f"[{self.addresses[0]}]"
        return kept | {"GYRE_RANK": str(rank), "GYRE_SIZE": str(size),
                       "GYRE_LOCAL_RANK": str(local_rank), "GYRE_LOCAL_SIZE": str(local_size),
                       "GYRE_SOCKET_IFNAME": INTERFACE,
                       "GYRE_RENDEZVOUS_ADDRESS": f"{meeting}:29777",
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

    def shape_device(self, host, device, rate):
        """What it sends."""
        self.call(self.on(host, ["tc", "qdisc", "replace", "dev", device, "root",
                                 *shaping.bucket(rate)]))

    def lay_cables(self):
        raise NotImplementedError

    @staticmethod
    def call(command, text=None):
        done = subprocess.run(command, input=text, capture_output=True, text=True,
                              timeout=PATIENCE_S)
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

    def left_behind(self):
        """What hosts still hold when all that ran there should have ended."""
        found = []
        for host, holder in enumerate(self.holders):
            if holder.has_ended():
                continue
            root = f"/proc/{holder.first}/root"
            found += [f"process {pid} on host {host}: {command_of(f'{root}/proc/{pid}')}"
                      for pid in os.listdir(f"{root}/proc")
                      if pid.isdigit() and pid != "1" and is_alive(f"{root}/proc/{pid}")]
            found += [f"/dev/shm/{name} on host {host}" for name in os.listdir(f"{root}/dev/shm")]
            with open(f"/proc/{holder.first}/net/unix", encoding="ascii") as file:
                found += [f"socket {line.split()[-1]} on host {host}" for line in file
                          if line.split()[-1].startswith("@gyre")]
        return found

    def end(self):
        while self.holders:
            self.holders.pop().end()
        shutil.rmtree(self.folder, ignore_errors=True)


def is_alive(folder):
    """No zombie: the first process of a host waits for nobody."""
    try:
        with open(f"{folder}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def command_of(folder):
    try:
        with open(f"{folder}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read().replace("\0", " ").strip()
    except OSError:
        return "gone"


class TwoHosts(Hosts):
    """Joined by one cable, or by several: "cable", "cable2" and so on, each a network."""

    def __init__(self, tag, lifetime_s=300, cables=1):
        self.names = [f"{tag}a", f"{tag}b"]
        self.addresses = ADDRESSES
        self.cables = [INTERFACE] + [f"{INTERFACE}{number}" for number in range(2, cables + 1)]
        super().__init__(self.names, lifetime_s)

    def lay_cables(self):
        first, second = self.first_process(0), self.first_process(1)
        for number, cable in enumerate(self.cables):
            self.call(["ip", "link", "add", cable, "netns", first, "type", "veth", "peer", "name",
                       cable, "netns", second])
            for host in range(2):
                address = f"10.{77 + number}.0.{host + 1}/24"
                self.call(self.on(host, ["ip", "addr", "add", address, "dev", cable]))
                self.call(self.on(host, ["ip", "link", "set", cable, "up"]))

    def shape(self, rates):
        """Each cable carries its rate, in both directions."""
        for cable, rate in zip(self.cables, rates, strict=True):
            for host in range(2):
                self.shape_device(host, cable, rate)

    def cut(self, host):
        self.call(self.on(host, ["ip", "link", "set", INTERFACE, "down"]))


class SwitchedHosts(Hosts):
    """Each has a cable to a switch, which is one host more."""
    NETWORK, PREFIX = "10.77.0.", 24

    def __init__(self, tag, hosts, lifetime_s=300):
        self.hosts = hosts
        self.addresses = [f"{self.NETWORK}{host + 1}" for host in range(hosts)]
        super().__init__([f"{tag}h{host}" for host in range(hosts)] + [f"{tag}s"], lifetime_s)

    def lay_cables(self):
        switch = self.hosts
        # It passes on what it gets, and learns of no groups first.
        self.ip(switch, "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
        self.ip(switch, "link", "set", "switch", "up")
        for host, address in enumerate(self.addresses):
            self.lay_cable(host)
            self.ip(switch, "link", "set", self.port(host), "master", "switch", "up")
            nodad = ["nodad"] if ":" in address else []
            self.ip(host, "addr", "add", f"{address}/{self.PREFIX}", "dev", INTERFACE, *nodad)
            self.ip(host, "link", "set", INTERFACE, "up")

    def shape(self, rates):
        """Each host's cable carries its rate, in both directions; one rate is for all."""
        for host, rate in enumerate(rates if len(rates) > 1 else rates * self.hosts):
            for place, device in ((host, INTERFACE), (self.hosts, self.port(host))):
                self.shape_device(place, device, rate)

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
