"""What befalls a job's network, and how the job has to end. Rows of docs/contributing/tests.md."""
import dataclasses
import os
import time
from collections.abc import Callable

import jobs
from jobs import INTERFACE, LIVENESS_S, Network

# How a job has to end.
RIGHT = "right"    # all results are right on every rank
TOLD = "told"      # every rank gets an error that names a culprit, in time
EITHER = "either"  # each rank one of the two; nothing is wrong, and nobody hangs
BY = {"tcp": "tcp", "mixed": "shm,tcp", "ucx": "ucx", "ucx-mixed": "shm,ucx"}
SMALL, MANY = ("1", "300"), ("1", "700", "20000")
AT_ONCE_S = 3  # a death is told in 1 s; the machine may have one core for 16 ranks
SILENCE_S = LIVENESS_S + 1 + 1
VICTIM, OTHER = 2, 3  # hosts


def no_settings(_rank, _network):
    return {}


@dataclasses.dataclass(frozen=True)
class Case:
    doing: str
    ending: str = RIGHT
    by: tuple = ("tcp", "ucx")
    network: Callable = Network
    hosts: int = 8
    ranks_each: int = 2
    counts: tuple = MANY
    seconds: float = 60            # of rank 0's; 0: one round
    bad: dict = dataclasses.field(default_factory=dict)  # cables, by host
    prepare: Callable = None       # of the network, before the ranks start
    settings: Callable = no_settings
    strike: Callable = None        # of (network, job), when all have made a round
    in_init: bool = False          # the ranks may not come so far as to make a round
    limit_s: float = AT_ONCE_S     # from the strike, or from the start if there is none
    culprits: tuple = (VICTIM,)    # hosts
    silent: tuple = ()             # hosts whose ranks need not say anything
    says: str = ""                 # a pattern that some rank's error has
    needs: tuple = ()              # programs


def peace(doing, **more):
    """One round, in which nothing may fail."""
    return Case(doing, RIGHT, seconds=0, limit_s=jobs.BEGIN_S, **more)


# ------------------------------------------------------------------ what befalls

def all_connections(network, _job):
    network.reset(VICTIM, "dst", f"{network.NETWORK}0/24")


def reset_one(network, own, others):
    network.reset(VICTIM, "sport", "=", f":{own}", "dport", "=", f":{others}")


def busiest_connection(network, _job):
    reset_one(network, *network.connections(VICTIM, OTHER)[-1])


def idlest_connection(network, _job):
    reset_one(network, *network.connections(VICTIM, OTHER)[0])


def down(network, _job):
    network.ip(VICTIM, "link", "set", INTERFACE, "down")


def removed(network, _job):
    network.ip(VICTIM, "link", "del", INTERFACE)


def pulled(network, _job):
    network.switch("link", "set", network.port(VICTIM), "down")


def silenced(network, _job):
    network.silence(VICTIM)


def vanished(network, _job):
    network.vanish(VICTIM)


def back_in_time(network, _job):
    network.silence(VICTIM)
    time.sleep(LIVENESS_S / 3)
    network.heal(VICTIM)


def back_too_late(network, _job):
    network.silence(VICTIM)
    time.sleep(LIVENESS_S + 3)
    network.heal(VICTIM)


def one_way(network, _job):
    network.drop(f"ip saddr {network.addresses[VICTIM]} ip daddr {network.addresses[OTHER]}")


def between(network, _job):
    for host, other in ((VICTIM, OTHER), (OTHER, VICTIM)):
        network.drop(f"ip saddr {network.addresses[host]} ip daddr {network.addresses[other]}")


def one_nic(network, _job):
    network.ip(VICTIM, "link", "set", INTERFACE, "down")


def second_nic(network, _job):
    network.ip(VICTIM, "link", "set", jobs.SECOND, "down")


def stuttering(_network, job):
    job.stutter(job.of_hosts([VICTIM]), stopped_s=0.3, running_s=0.1)


def frozen(_network, job):
    job.stutter(job.of_hosts([VICTIM]), stopped_s=1000, running_s=0)


def frames_of(mtu, port):
    """The hosts' cables carry frames of so many bytes, and the switch's end of one no longer ones
    than `port`."""
    def prepare(network):
        for host in range(network.hosts):
            network.ip(host, "link", "set", INTERFACE, "mtu", str(mtu))
            network.switch("link", "set", network.port(host), "mtu", str(mtu))
        network.switch("link", "set", network.port(VICTIM), "mtu", str(port))
        network.send_whole_frames()
    return prepare


def one_small_mtu(network):
    frames_of(9000, 1500)(network)
    network.ip(VICTIM, "link", "set", INTERFACE, "mtu", "1500")


def little_room(network):
    network.set_kernel(VICTIM, "net/ipv4/tcp_rmem", "4096 4096 8192")


def slow_cable(network):
    for place, device in ((VICTIM, INTERFACE), (network.hosts, network.port(VICTIM))):
        network.call(network.on(place, ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                                        "1mbit", "burst", "32kb", "latency", "500ms"]))


def absent(network):
    network.silence(VICTIM)


def is_down(network):
    network.ip(VICTIM, "link", "set", INTERFACE, "down")


def refuses(network):
    rules = ("table inet gyre { chain in { type filter hook input priority 0; }; }\n"
             "add rule inet gyre in iifname != lo meta l4proto tcp reject with tcp reset\n")
    network.call(network.on(VICTIM, ["nft", "-f", "-"]), rules)


def no_name_server(network):
    path = os.path.join(network.folder, "resolv.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write("nameserver 10.77.0.99\n")
    network.call(network.on(VICTIM, ["mount", "--bind", path, "/etc/resolv.conf"]))


# ------------------------------------------------------------------ settings of ranks

def on_victim(settings):
    """Of the ranks of that host; may be a function of the network."""
    def settings_of(rank, network):
        if rank // 2 != VICTIM:
            return {}
        return settings(network) if callable(settings) else settings
    return settings_of


def patient(liveness_s, call_s=jobs.CALL_S):
    return lambda _rank, _network: {"GYRE_LIVENESS_TIMEOUT": str(liveness_s),
                                    "GYRE_TIMEOUT": str(call_s)}


def checksums(_rank, _network):
    return {"GYRE_TCP_CHECKSUM": "1"}


def both_nics(_rank, _network):
    return {"GYRE_TCP_SOCKETS": "2", "GYRE_SOCKET_IFNAME": f"={INTERFACE},{jobs.SECOND}"}


def one_byte(rank, network):
    if rank // 2 not in (VICTIM, OTHER):
        return {}
    return {"LD_PRELOAD": network.one_byte_io}


def short_init(rank, network):
    return {"GYRE_INIT_TIMEOUT": "6"} | on_victim(
        {"GYRE_RENDEZVOUS_ADDRESS": "no-such-host.invalid:29777"})(rank, network)


def named_by_dns(rank, network):
    return {"GYRE_INIT_TIMEOUT": "6"} | on_victim(
        {"GYRE_RENDEZVOUS_ADDRESS": "host0.example.com:29777"})(rank, network)


def impatient(_rank, _network):
    return {"GYRE_INIT_TIMEOUT": "6"}


def strange_interface(rank, network):
    return {"GYRE_INIT_TIMEOUT": "6"} | on_victim(
        {"GYRE_SOCKET_IFNAME": "nosuch0"})(rank, network)


INIT_LIMIT_S = 6 + 4  # GYRE_INIT_TIMEOUT, and the start of 16 processes

CASES = {
    # Nothing may come of these.
    "quiet": peace("nothing happens", by=tuple(BY)),
    "ipv6": peace("hosts have IPv6 alone", by=tuple(BY), network=jobs.Ipv6),
    "two-nics": peace("hosts have two interfaces, one ten times as fast", network=jobs.TwoNics),
    "nics-together": peace("hosts use two interfaces at once, one ten times as fast", by=("tcp",),
                           network=jobs.TwoNics, settings=both_nics),
    "small-mtu": peace("one host has an MTU of 1500, the others of 9000", prepare=one_small_mtu),
    "spoilt": peace("a cable loses, repeats and reorders frames",
                    bad={VICTIM: ("loss=0.01", "twice=0.02", "late=0.02")}),
    "lossy": peace("a cable loses every tenth frame", bad={VICTIM: ("loss=0.1",)},
                   counts=SMALL, settings=patient(10)),
    # Half of the answers are lost, and each time the kernel doubles its pause.
    "very-lossy": peace("a cable loses 30 % of the frames", by=("tcp",), bad={1: ("loss=0.3",)},
                        hosts=2, counts=SMALL, settings=patient(60, 100)),
    # UCX leaves each lost frame to the kernel, which doubles its pauses: no deadline is sure.
    "very-lossy-ucx": Case("a cable loses 30 % of the frames", EITHER, by=("ucx",), seconds=0,
                           bad={1: ("loss=0.3",)}, hosts=2, counts=SMALL, limit_s=jobs.BEGIN_S,
                           in_init=True, settings=patient(20, 60), culprits=(0, 1)),
    "long-way": peace("an answer takes half a second", bad={1: ("delay=250",)}, hosts=2,
                      ranks_each=1, counts=("300",)),
    "slow": peace("a cable carries 1 Mb/s", prepare=slow_cable, counts=SMALL, needs=("tc",)),
    "small-window": peace("the receive windows of a host have 4 KiB", prepare=little_room),
    "one-byte": peace("sockets of two hosts give and take one byte a call", settings=one_byte,
                      counts=SMALL, says=r"one_byte_io: [1-9]\d\d+ calls"),
    "slow-reader": Case("two ranks run for a quarter of the time, with small windows", RIGHT,
                        prepare=little_room, strike=stuttering, seconds=5, limit_s=jobs.BEGIN_S),
    "back-in-time": Case("a host is cut off for a third of the limit", RIGHT, strike=back_in_time,
                         seconds=LIVENESS_S + 2, limit_s=jobs.BEGIN_S),
    "idle-reset": Case("a connection by which nobody sends is reset", RIGHT, by=("ucx",),
                       strike=idlest_connection, seconds=5, limit_s=jobs.BEGIN_S),
    # Errors at once.
    "flipped": Case("a cable changes bits, and messages have checksums", TOLD, by=("tcp", "mixed"),
                    bad={VICTIM: ("flip=10.77.0.4,10.77.0.3",)}, settings=checksums,
                    culprits=(VICTIM, OTHER), in_init=True, limit_s=60,
                    says="changed on their way"),
    "reset": Case("all connections of a host are reset", TOLD, strike=all_connections),
    "one-reset": Case("the busiest connection of two hosts is reset", TOLD,
                      strike=busiest_connection, culprits=(VICTIM, OTHER)),
    # Silence.
    "down": Case("a host's interface goes down", TOLD, strike=down, limit_s=SILENCE_S),
    "removed": Case("a host's interface is removed", TOLD, strike=removed, limit_s=SILENCE_S),
    "pulled": Case("a host's cable is pulled", TOLD, strike=pulled, limit_s=SILENCE_S),
    "half-open": Case("a host's frames are lost, and nobody is told", TOLD, strike=silenced,
                      limit_s=SILENCE_S),
    "vanished": Case("a host loses its power", TOLD, strike=vanished, limit_s=SILENCE_S,
                     silent=(VICTIM,)),
    "back-too-late": Case("a host comes back after the limit", TOLD, strike=back_too_late,
                          limit_s=SILENCE_S),
    "one-way": Case("frames of one host to another are lost", TOLD, strike=one_way,
                    limit_s=SILENCE_S, culprits=(VICTIM, OTHER), needs=("nft",)),
    "cut-pair": Case("frames between two hosts are lost", TOLD, strike=between,
                     limit_s=SILENCE_S, culprits=(VICTIM, OTHER), needs=("nft",)),
    "frozen": Case("the processes of a host are stopped", TOLD, strike=frozen, limit_s=SILENCE_S,
                   silent=(VICTIM,)),
    "black-hole": Case("a cable loses frames above 1500 of 9000 bytes", TOLD,
                       prepare=frames_of(9000, 1500), in_init=True,
                       limit_s=jobs.INIT_S + jobs.CALL_S),
    "one-nic": Case("the faster of a host's two interfaces goes down", TOLD, strike=one_nic,
                    network=jobs.TwoNics, limit_s=SILENCE_S),
    "one-of-two": Case("the slower of the two interfaces that a host uses goes down", TOLD,
                       by=("tcp",), strike=second_nic, network=jobs.TwoNics, settings=both_nics,
                       limit_s=SILENCE_S),
    # Ranks that cannot meet.
    "absent": Case("a host is cut off from the beginning", TOLD, by=("tcp",), prepare=absent,
                   settings=impatient, in_init=True, limit_s=INIT_LIMIT_S),
    "refusing": Case("a host refuses all connections", TOLD, by=("tcp",), prepare=refuses,
                     settings=impatient, in_init=True, limit_s=INIT_LIMIT_S, needs=("nft",)),
    "down-before": Case("a host's interface is down", TOLD, by=("tcp",), prepare=is_down,
                        settings=impatient, in_init=True, limit_s=INIT_LIMIT_S),
    "no-interface": Case("a host has no interface of that name", TOLD, by=("tcp",),
                         settings=strange_interface, in_init=True, limit_s=INIT_LIMIT_S,
                         says="nosuch0"),
    "no-name": Case("a host cannot resolve the name of the meeting", TOLD, by=("tcp",),
                    settings=short_init, in_init=True, limit_s=INIT_LIMIT_S,
                    says="no-such-host.invalid"),
    "slow-dns": Case("a host's name server does not answer", TOLD, by=("tcp",),
                     prepare=no_name_server, settings=named_by_dns, in_init=True,
                     limit_s=INIT_LIMIT_S, says="host0.example.com"),
}
