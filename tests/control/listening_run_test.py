#!/usr/bin/env python3
"""Where a job's processes listen by TCP: nowhere if all ranks are on one host, on the loopback
interface if these connect by TCP, and otherwise on the chosen interface alone.

usage: listening_run_test.py GYRE STUCK_RANK
"""
import ipaddress
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import two_hosts  # noqa: E402

PATIENCE_S = 60
LISTENS = "0A"  # as the kernel's tables have it


def clean(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYRE_")}
    return dict(kept, **more)


def address_of(text):
    """Words in the machine's order, as /proc/net/tcp writes them."""
    words = [bytes.fromhex(text[i:i + 8])[::-1] for i in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def listeners(pid):
    """The addresses at which a process listens by TCP."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue
        if found:
            inodes.add(found.group(1))
    addresses = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            for line in file.read().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and fields[9] in inodes:
                    addresses.append(address_of(fields[1].split(":")[0]))
    return addresses


def until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Ranks:
    """Ranks that sleep once they have met and called. Those of other hosts end with these."""

    def __init__(self, commands, environments, hosts=None):
        self.hosts = hosts
        self.processes = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, text=True)
                          for command, environment in zip(commands, environments)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.hosts:
            self.hosts.end()
        for process in self.processes:
            process.kill()
            process.communicate()

    def wait_until_here(self, count=1):
        for process in self.processes:
            for _ in range(count):
                line = process.stdout.readline()
                assert line.endswith("here\n"), f"a rank said {line!r}"


def stuck(program, tag):
    return [program, "asleep", "0", "3", "1", f"listening-{os.getpid()}-{tag}"]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


def listeners_of_run(gyre, program, tag, **environment):
    """Of each rank of `gyre run`, once they have met and called."""
    command = [gyre, "run", "-n", "4", *stuck(program, tag)]
    with Ranks([command], [clean(**environment)]) as run:
        run.wait_until_here(4)
        ranks = [pid for pid in children_of(run.processes[0].pid) if is_rank(pid)]
        assert len(ranks) == 4, ranks
        return [listeners(pid) for pid in ranks]


def is_rank(pid):
    with open(f"/proc/{pid}/comm", encoding="ascii") as file:
        return file.read().startswith("stuck_rank")


def one_host_listens_nowhere(gyre, program):
    assert listeners_of_run(gyre, program, "run") == [[]] * 4


def tcp_on_one_host_listens_at_loopback(gyre, program):
    for name, value in (("GYRE_TRANSPORT", "tcp"), ("GYRE_SHM_DISABLE", "1")):
        found = listeners_of_run(gyre, program, name, **{name: value})
        assert [[a.is_loopback for a in one] for one in found] == [[True]] * 4, found
    found = listeners_of_run(gyre, program, "six", GYRE_TRANSPORT="tcp",
                             GYRE_SOCKET_FAMILY="AF_INET6")
    assert found == [[ipaddress.ip_address("::1")]] * 4, found


def by_variables(size, rank, **more):
    return clean(RANK=str(rank), WORLD_SIZE=str(size), **more)


def launchers_are_believed(_, program):
    environments = [by_variables(2, rank, LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
                    for rank in range(2)]
    with Ranks([stuck(program, "torchrun")] * 2, environments) as ranks:
        ranks.wait_until_here()
        assert [listeners(rank.pid) for rank in ranks.processes] == [[], []]


def unsaid_hosts_are_expected_until_all_have_come(_, program):
    """On a host with a cable: nobody said where the ranks are, and they turn out to be here."""
    if why_not := two_hosts.why_not():
        print(f"not run: {why_not}")
        return
    hosts = two_hosts.TwoHosts(f"listen{os.getpid()}")
    environments = [by_variables(2, rank, GYRE_RENDEZVOUS_FILE=os.path.join(hosts.folder, "id"))
                    for rank in range(2)]
    command = hosts.on(0, stuck(program, "unsaid"))
    cable = [ipaddress.ip_address(two_hosts.ADDRESSES[0])]
    with Ranks([command], environments[:1], hosts) as first:
        until(lambda: listeners_in(first.processes[0]) == cable, "rank 0 does not listen")
        with Ranks([command], environments[1:], hosts) as second:
            for rank in (first, second):
                rank.wait_until_here()
                until(lambda r=rank: listeners_in(r.processes[0]) == [], "it still listens")


def listeners_in(process):
    """Of what nsenter became or started; nothing while there is no such process yet."""
    for pid in [str(process.pid), *children_of(process.pid)]:
        if is_rank(pid):
            return listeners(pid)
    return None


def two_hosts_listen_on_their_cable(_, program):
    if why_not := two_hosts.why_not():
        print(f"not run: {why_not}")
        return
    for transport in ("shm,tcp", "tcp"):
        hosts = two_hosts.TwoHosts(f"listen{os.getpid()}")
        environments = [
            clean(GYRE_RANK=str(rank), GYRE_SIZE="3", GYRE_LOCAL_RANK=str(rank // 2),
                  GYRE_LOCAL_SIZE=str(2 - rank % 2), GYRE_TRANSPORT=transport,
                  GYRE_SOCKET_IFNAME=two_hosts.INTERFACE,
                  GYRE_RENDEZVOUS_ADDRESS=f"{two_hosts.ADDRESSES[0]}:29778",
                  GYRE_RENDEZVOUS_SECRET_FILE=hosts.secret) for rank in range(3)]
        commands = [hosts.on(rank % 2, stuck(program, "cable")) for rank in range(3)]
        with Ranks(commands, environments, hosts) as ranks:
            ranks.wait_until_here()
            for rank, process in enumerate(ranks.processes):
                cable = ipaddress.ip_address(two_hosts.ADDRESSES[rank % 2])
                found = listeners_in(process)
                assert found and set(found) == {cable}, (transport, rank, found)


def main(gyre, program):
    for test in (one_host_listens_nowhere, tcp_on_one_host_listens_at_loopback,
                 launchers_are_believed, unsaid_hosts_are_expected_until_all_have_come,
                 two_hosts_listen_on_their_cable):
        start = time.monotonic()
        test(gyre, program)
        print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(*[os.path.abspath(path) for path in sys.argv[1:3]])
