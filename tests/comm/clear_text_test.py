#!/usr/bin/env python3
"""A process whose data goes between hosts in clear text says so once, however many communicators it
has, unless a setting has decided it. Two hosts of one process each. Needs root.

usage: clear_text_test.py MANY_COMMUNICATORS
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import two_hosts  # noqa: E402

RUN_S = 120
SKIPPED = 77
WARNING = "data between hosts is not encrypted"


def warnings(hosts, program, port, **settings):
    """How often each of the two processes warned."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYRE_")}
    ranks = []
    for rank in range(2):
        environment = dict(
            kept, GYRE_RANK=str(rank), GYRE_SIZE="2", GYRE_LOCAL_RANK="0", GYRE_LOCAL_SIZE="1",
            GYRE_SOCKET_IFNAME=two_hosts.INTERFACE, GYRE_INIT_TIMEOUT="60",
            GYRE_RENDEZVOUS_ADDRESS=f"{two_hosts.ADDRESSES[0]}:{port}",
            GYRE_RENDEZVOUS_SECRET_FILE=hosts.secret, **settings)
        ranks.append(subprocess.Popen(
            hosts.on(rank, [program, "3"]), env=environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    said = [rank.communicate(timeout=RUN_S)[1] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), said
    return [text.count(WARNING) for text in said]


def main(program):
    if why_not := two_hosts.why_not():
        print(f"not run: {why_not}")
        return SKIPPED
    hosts = two_hosts.TwoHosts(f"clear{os.getpid()}")
    cases = [({}, [1, 1]), ({"GYRE_TCP_SECURITY": "ticket"}, [0, 0]),
             ({"GYRE_TCP_SECURITY": "tls"}, [0, 0])]
    try:
        for port, (settings, expected) in enumerate(cases, 29790):
            found = warnings(hosts, program, port, **settings)
            assert found == expected, (settings, found)
    finally:
        hosts.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
