"""A job on hosts around a switch: its ranks make every collective and check the results
(tests/rank_programs/collectives_rank). The switch, the cables and the hosts can be disturbed."""
import os
import re
import signal
import subprocess
import sys
import threading
import time

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support")
sys.path.insert(0, SUPPORT)
import processes  # noqa: E402
import two_hosts  # noqa: E402
from two_hosts import INTERFACE  # noqa: E402

SECOND = "cable2"  # an interface of hosts with two
LIVENESS_S = 3
INIT_S = 20
CALL_S = 20
BEGIN_S = 120  # all ranks have made their first round: one core has 16 ranks, a cable loses much
END_S = 15     # after the limit of a case; who runs then hangs
FILTER = "table bridge gyre { chain forward { type filter hook forward priority 0; }; }"
# Runs on a host: no device there sends more than a frame at a time to the switch.
WHOLE_FRAMES = """
import array, fcntl, socket, struct, sys
with socket.socket() as any_socket:
    for number in (0x1f, 0x24):  # ETHTOOL_STSO, ETHTOOL_SGSO
        wanted = array.array("B", struct.pack("II", number, 0))
        address, _ = wanted.buffer_info()
        fcntl.ioctl(any_socket, 0x8946, struct.pack("16sP", sys.argv[1].encode(), address))
"""


class Network(two_hosts.SwitchedHosts):
    """`bad`: what befalls the frames of hosts, by host (tests/support/bad_cable.py)."""

    def __init__(self, tag, hosts, bad=None):
        self.bad, self.relays, self.stopping = bad or {}, [], threading.Event()
        super().__init__(tag, hosts)

    def lay_cable(self, host):
        if host not in self.bad:
            super().lay_cable(host)
            return
        relay = subprocess.Popen(
            [sys.executable, os.path.join(SUPPORT, "bad_cable.py"), self.first_process(host),
             INTERFACE, self.first_process(self.hosts), self.port(host), *self.bad[host]],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.relays.append(relay)
        if relay.stdout.readline() != "ready\n":
            raise OSError("the relay of a cable could not be made")

    def switch(self, *words):
        self.ip(self.hosts, *words)

    def silence(self, host):
        """Nothing goes to the host or comes from it, and no device says so."""
        self.switch("link", "set", self.port(host), "nomaster")

    def heal(self, host):
        self.switch("link", "set", self.port(host), "master", "switch")

    def drop(self, rule):
        """The switch loses what matches."""
        place = self.on(self.hosts, ["nft", "-f", "-"])
        self.call(place, f"{FILTER}\nadd rule bridge gyre forward {rule} drop\n")

    def reset(self, host, *which):
        """TCP connections of the host end at once; the other ends get RST."""
        subprocess.run(self.on(host, ["ss", "-K", *which]), capture_output=True, check=False,
                       timeout=two_hosts.PATIENCE_S)

    def connections(self, host, other):
        """[(own port, the other's port)] of a host's established TCP connections with another, the
        one first that has carried the least."""
        done = subprocess.run(self.on(host, ["ss", "-tnHiO", "state", "established", "dst",
                                             self.addresses[other]]), text=True,
                              capture_output=True, check=True, timeout=two_hosts.PATIENCE_S)
        carried = {}
        for line in done.stdout.splitlines():
            ports = tuple(int(port) for port in re.findall(r":(\d+)\s", line)[:2])
            carried[ports] = sum(int(count) for count in
                                 re.findall(r"bytes_(?:sent|received):(\d+)", line))
        return sorted(carried, key=carried.get)

    def set_kernel(self, host, name, value):
        self.call(self.on(host, ["sh", "-c", 'echo "$1" > "/proc/sys/$2"', "sh", value, name]))

    def send_whole_frames(self):
        for host in range(self.hosts):
            self.call(self.on(host, [sys.executable, "-c", WHOLE_FRAMES, INTERFACE]))

    def vanish(self, host):
        """As a host without power does."""
        self.silence(host)
        self.holders[host].end()

    def spoilt(self):
        """What the bad cables have done, as they say; ends them."""
        return [relay.communicate("", timeout=two_hosts.PATIENCE_S)[0].strip()
                for relay in self.relays]

    def end(self):
        self.stopping.set()
        for relay in self.relays:
            relay.kill()
            relay.communicate()
        super().end()


class Ipv6(Network):
    """No IPv4 but loopback's."""
    NETWORK, PREFIX = "fd77::", 64


class TwoNics(Network):
    """Each host has a second cable, to a switch of its own, of a tenth of the speed."""
    RATE, SECOND_RATE = "400mbit", "40mbit"

    def lay_cables(self):
        super().lay_cables()
        self.switch("link", "add", "switch2", "type", "bridge", "mcast_snooping", "0")
        self.switch("link", "set", "switch2", "up")
        for host in range(self.hosts):
            port = self.second_port(host)
            self.call(["ip", "link", "add", SECOND, "netns", self.first_process(host), "type",
                       "veth", "peer", "name", port, "netns", self.first_process(self.hosts)])
            self.switch("link", "set", port, "master", "switch2", "up")
            self.ip(host, "addr", "add", f"10.78.0.{host + 1}/24", "dev", SECOND)
            self.ip(host, "link", "set", SECOND, "up")
            for place, devices in ((host, (INTERFACE, SECOND)),
                                   (self.hosts, (self.port(host), port))):
                for device, rate in zip(devices, (self.RATE, self.SECOND_RATE)):
                    self.shape_device(place, device, rate)

    @staticmethod
    def second_port(host):
        return f"second{host}"


class Job:
    def __init__(self, network, program, words, settings_of, ranks_each=2):
        """`settings_of`: of a rank, beside those of its host."""
        self.network, self.ranks_each = network, ranks_each
        self.size, self.ranks, self.files = network.hosts * ranks_each, [], []
        for rank in range(self.size):
            self.start(rank, [program, *words], settings_of(rank))

    def start(self, rank, command, settings):
        environment = self.network.environment(rank, self.size, rank % self.ranks_each,
                                               self.ranks_each)
        environment |= {"GYRE_LIVENESS_TIMEOUT": str(LIVENESS_S), "GYRE_TIMEOUT": str(CALL_S),
                        "GYRE_INIT_TIMEOUT": str(INIT_S),
                        "GYRE_TCP_SECURITY": "ticket", **settings}
        path = os.path.join(self.network.folder, f"rank-{rank}")
        self.files.append(path)
        with open(path, "wb") as file:
            self.ranks.append(subprocess.Popen(
                self.network.on(self.host_of(rank), command), env=environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT))

    def host_of(self, rank):
        return rank // self.ranks_each

    def of_hosts(self, hosts):
        return {rank for rank in range(self.size) if self.host_of(rank) in hosts}

    def said(self, rank):
        with open(self.files[rank], encoding="utf-8", errors="replace") as file:
            return file.read()

    def await_begin(self):
        """Whether all have made their first round of calls."""
        until = time.monotonic() + BEGIN_S
        while not all("begun\n" in self.said(rank) for rank in range(self.size)):
            failed = any(rank.poll() for rank in self.ranks)
            if failed or time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def await_end(self, limit_s):
        """The ranks that did not end in that time. All have ended then."""
        until = time.monotonic() + limit_s
        while any(rank.poll() is None for rank in self.ranks) and time.monotonic() < until:
            time.sleep(0.05)
        late = [number for number, rank in enumerate(self.ranks) if rank.poll() is None]
        for rank in late:
            self.signal(rank, signal.SIGKILL)
        for rank in self.ranks:
            rank.kill()
            rank.wait()
        return late

    def signal(self, rank, number):
        """To the rank itself: nsenter stands before it."""
        for pid in [*processes.below(self.ranks[rank].pid), self.ranks[rank].pid]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def stutter(self, ranks, stopped_s, running_s):
        """From now on these ranks run a part of the time only."""
        def go():
            while not self.network.stopping.wait(running_s):
                for rank in ranks:
                    self.signal(rank, signal.SIGSTOP)
                self.network.stopping.wait(stopped_s)
                for rank in ranks:
                    self.signal(rank, signal.SIGCONT)
        threading.Thread(target=go, daemon=True).start()
