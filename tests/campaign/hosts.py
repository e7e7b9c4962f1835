"""Where the processes of a trial run: on this machine as it is, or on simulated hosts. Each of
these has its own network, name, boot id, processes and shared memory. A router joins them and can
drop packets between them (tests/support/two_hosts.py makes the hosts). They need root."""
import os
import re
import shutil
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import two_hosts  # noqa: E402
from two_hosts import INTERFACE  # noqa: E402

LIFETIME_S = 240  # even if nobody ends them
NARROW = "rate 200mbit burst 32k latency 30ms"
FILTER = "table inet campaign { chain forward { type filter hook forward priority 0; }; }"


def missing():
    """{what is not to be had here: why}."""
    lacks = {}
    if reason := two_hosts.why_not():
        lacks["namespaces"] = lacks["nft"] = reason
    elif not shutil.which("nft"):
        lacks["nft"] = "there is no nft"
    if not shutil.which("tc"):
        lacks["tc"] = "there is no tc"
    if not shutil.which("strace"):
        lacks["strace"] = "there is no strace"
    return lacks


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


class Hosts(two_hosts.Hosts):
    """Each has a cable to a router."""

    def __init__(self, hosts, tag):
        self.hosts, self.router = hosts, None
        self.settings = {"GYRE_SOCKET_IFNAME": INTERFACE if hosts > 1 else "lo"}
        super().__init__([f"{tag}-{host}" for host in range(hosts)], LIFETIME_S)

    @staticmethod
    def address(host):
        return f"10.78.{host}.2"

    def lay_cables(self):
        if self.hosts == 1:
            return
        self.router = two_hosts.Holder(["--net"], "echo 1 > /proc/sys/net/ipv4/ip_forward && "
                                       f"echo '{FILTER}' | nft -f -", LIFETIME_S)
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

    def batch(self, holder, lines):
        self.call([*self.network(holder), "ip", "-batch", "-"], "\n".join(lines) + "\n")

    @staticmethod
    def network(holder):
        return ["nsenter", "-t", str(holder.first), "--net", "--"]

    def process_of(self, popen):
        return two_hosts.first_child(popen.pid)

    # ------------------------------------------------------------------ links

    def drop(self, rules):
        """Loses what matches any of the rules, from now on."""
        lines = "".join(f"add rule inet campaign forward {rule} drop\n" for rule in rules)
        self.call([*self.network(self.router), "nft", "-f", "-"], lines)

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
            self.call([*self.network(self.router), "tc", "qdisc", "add", "dev", f"port{host}",
                       "root", "tbf", *NARROW.split()])

    def heal(self):
        self.call([*self.network(self.router), "nft", "flush", "chain", "inet", "campaign",
                   "forward"])

    # ------------------------------------------------------------------ the end

    def end(self):
        if self.router:
            self.router.end()
        super().end()
