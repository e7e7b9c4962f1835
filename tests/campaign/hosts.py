"""Where the processes of a trial run: on this machine as it is, or on simulated hosts. Each of
these has its own network, name, boot id, processes and shared memory. A router joins them and can
drop packets between them. Hosts are unnamed namespaces, each held by one process: when it ends, the
kernel removes everything, stopped processes too. They need root."""
import os
import re
import shutil
import socket
import struct
import subprocess

INTERFACE = "cable"
PATIENCE_S = 20
LIFETIME_S = 240  # even if nobody ends them
HOST_SPACES = ["--net", "--uts", "--mount", "--pid"]
NARROW = "rate 200mbit burst 32k latency 30ms"
FILTER = "table inet campaign { chain forward { type filter hook forward priority 0; }; }"


def missing():
    """{what is not to be had here: why}."""
    lacks = {}
    if os.geteuid() != 0:
        lacks["namespaces"] = "it takes root to make network namespaces"
    elif not all(shutil.which(program) for program in ("unshare", "nsenter", "ip")):
        lacks["namespaces"] = "there is no unshare, nsenter or ip"
    else:
        tried = subprocess.run(["unshare", *HOST_SPACES, "--fork", "--mount-proc", "true"],
                               capture_output=True, text=True, timeout=PATIENCE_S)
        if tried.returncode != 0:
            lacks["namespaces"] = tried.stderr.strip()
    if "namespaces" in lacks:
        lacks["nft"] = lacks["namespaces"]
    elif not shutil.which("nft"):
        lacks["nft"] = "there is no nft"
    if not shutil.which("tc"):
        lacks["tc"] = "there is no tc"
    if not shutil.which("strace"):
        lacks["strace"] = "there is no strace"
    return lacks


def run(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def first_child(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


class ThisMachine:
    """One host, shared with whatever else runs here."""
    hosts = 1
    settings = {"GYRE_SOCKET_IFNAME": "lo"}

    def on(self, _host, command):
        return command

    def process_of(self, popen):
        """The process id of what was started with on()."""
        return popen.pid

    def left_behind(self):
        return []

    def end(self):
        pass


class Holder:
    """A process that keeps namespaces alive."""

    def __init__(self, spaces, script):
        self.popen = subprocess.Popen(
            ["unshare", *spaces, "--fork", "--kill-child", "sh", "-c",
             f"{script} && echo ready && exec sleep {LIFETIME_S}"],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        if self.popen.stdout.readline() != "ready\n":
            self.end()
            raise OSError(f"no namespaces: {script}")
        self.first = first_child(self.popen.pid)

    def end(self):
        self.popen.kill()
        self.popen.communicate()


class Hosts:
    settings = {"GYRE_SOCKET_IFNAME": INTERFACE}

    def __init__(self, hosts, folder, tag):
        self.hosts, self.folder, self.tag = hosts, folder, tag
        self.holders, self.router = [], None
        self.settings = dict(Hosts.settings) if hosts > 1 else {"GYRE_SOCKET_IFNAME": "lo"}
        try:
            for host in range(hosts):
                self.holders.append(self.make(host))
            if hosts > 1:
                self.lay_cables()
        except BaseException:
            self.end()
            raise

    def make(self, host):
        boot_id = os.path.join(self.folder, f"boot-id-{host}")
        with open(boot_id, "w", encoding="ascii") as file:
            file.write(f"{self.tag}-{host}\n")
        return Holder([*HOST_SPACES, "--mount-proc"],
                      f"hostname {self.tag}-{host} && mount -t tmpfs none /dev/shm && "
                      f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && "
                      "ip link set lo up")

    @staticmethod
    def address(host):
        return f"10.78.{host}.2"

    def lay_cables(self):
        self.router = Holder(["--net"], "echo 1 > /proc/sys/net/ipv4/ip_forward && "
                             f"echo '{FILTER}' | nft -f -")
        lines = []
        for host, holder in enumerate(self.holders):
            lines.append(f"link add port{host} type veth peer name {INTERFACE} "
                         f"netns {holder.first}")
            lines.append(f"addr add 10.78.{host}.1/24 dev port{host}")
            lines.append(f"link set port{host} up")
        self.batch(self.router, lines)
        for host, holder in enumerate(self.holders):
            self.batch(holder, [f"addr add {self.address(host)}/24 dev {INTERFACE}",
                                f"link set {INTERFACE} up",
                                f"route add default via 10.78.{host}.1"])

    @staticmethod
    def batch(holder, lines):
        run(["nsenter", "-t", str(holder.first), "--net", "--", "ip", "-batch", "-"],
            "\n".join(lines) + "\n")

    def on(self, host, command):
        return ["nsenter", "-t", str(self.holders[host].first), *HOST_SPACES, "--", *command]

    def process_of(self, popen):
        return first_child(popen.pid)

    # ------------------------------------------------------------------ links

    def drop(self, rules):
        """Loses what matches any of the rules, from now on."""
        run(["nsenter", "-t", str(self.router.first), "--net", "--", "nft", "-f", "-"],
            "".join(f"add rule inet campaign forward {rule} drop\n" for rule in rules))

    def lose(self, source, target):
        self.drop([f"ip saddr {self.address(source)} ip daddr {self.address(target)}"])

    def cut(self, first, second):
        there, here = self.address(first), self.address(second)
        self.drop([f"ip saddr {a} ip daddr {b}" for a, b in ((there, here), (here, there))])

    def connections(self, first, second):
        """Ports of TCP connections between two hosts: [(of the first, of the second)]."""
        wanted = struct.unpack("<I", socket.inet_aton(self.address(second)))[0]
        with open(f"/proc/{self.holders[first].first}/net/tcp", encoding="ascii") as file:
            rows = re.findall(r": \w+:(\w+) (\w+):(\w+) 01 ", file.read())
        return sorted((int(port, 16), int(far_port, 16)) for port, address, far_port in rows
                      if int(address, 16) == wanted)

    def cut_connection(self, first, second, ports):
        ways = ((first, second, ports), (second, first, ports[::-1]))
        self.drop([f"ip saddr {self.address(a)} ip daddr {self.address(b)} "
                   f"tcp sport {p} tcp dport {q}" for a, b, (p, q) in ways])

    def narrow(self):
        for host in range(self.hosts):
            run(["nsenter", "-t", str(self.router.first), "--net", "--", "tc", "qdisc", "add",
                 "dev", f"port{host}", "root", "tbf", *NARROW.split()])

    def heal(self):
        run(["nsenter", "-t", str(self.router.first), "--net", "--", "nft", "flush", "chain",
             "inet", "campaign", "forward"])

    # ------------------------------------------------------------------ the end

    def left_behind(self):
        """What a host still holds when all its ranks have ended."""
        found = []
        for host, holder in enumerate(self.holders):
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
        for holder in [*self.holders, *([self.router] if self.router else [])]:
            holder.end()


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
