#!/usr/bin/env python3
"""What is on the wire: real jobs on hosts of their own, whose ports are recorded. The secret of a
job is nowhere in the record, in no form. The payload is there in clear without TLS, and not with
GYRE_TCP_SECURITY=tls. Needs root.

usage: wire_capture_test.py GYRE TELLING_RANK
"""
import base64
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import capture  # noqa: E402
import two_hosts  # noqa: E402

SKIPPED = 77
RUN_S = 60
PORT = 29811
TEXT = "a gradient that nobody else may see, not even 1 word; "
SECRET_BYTES = 32
# lib/trust/unique_id.cc, lib/rendezvous/run_secret.cc
ID_BYTES, ID_SECRET_AT, RUN_SECRET_AT = 128, 8, 8
LOG_LINE = "is under TLS 1.3 (TLS_AES_128_GCM_SHA256 by OpenSSL)"
HELLO, TICKET = b"gyre-control-1-", b"GYRETKT1"


def forms(secret):
    """The secret, or half of it, as it may stand in a record."""
    found = []
    for part in (secret[:len(secret) // 2], secret[len(secret) // 2:]):
        found += [part, part.hex().encode(), part.hex().upper().encode(), part[::-1]]
        for shift in range(3):  # the letters that the neighbours have no part in
            text = base64.b64encode(bytes(shift) + part)[(8 * shift + 5) // 6:]
            text = text[:(8 * len(part)) // 6 - 1]
            found += [text, text.replace(b"+", b"-").replace(b"/", b"_")]
    return found


def forms_are_found():
    """The search finds what it looks for."""
    secret = os.urandom(SECRET_BYTES)
    for text in (secret, secret.hex().encode(), base64.b64encode(secret),
                 base64.b64encode(b"x" + secret + b"yz"), base64.b64encode(b"xy" + secret),
                 base64.urlsafe_b64encode(secret)):
        assert holds([b"before " + text + b" behind"], forms(secret)), text
    assert not holds([os.urandom(4096)], forms(secret))


def holds(texts, words):
    return any(word in text for text in texts for word in words)


def clean(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYRE_")}
    return dict(kept, GYRE_TRANSPORT="tcp", GYRE_INIT_TIMEOUT=str(RUN_S),
                GYRE_DEBUG="INFO", GYRE_DEBUG_SUBSYS="NET", **more)


def read_when_there(path, length):
    deadline = time.monotonic() + RUN_S
    while time.monotonic() < deadline:
        try:
            with open(path, "rb") as file:
                content = file.read()
            if len(content) >= length:
                return content
        except FileNotFoundError:
            pass
        time.sleep(0.001)
    raise AssertionError(f"{path} did not appear")


def finish(ranks):
    """What they said."""
    said = [rank.communicate(timeout=RUN_S)[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), said
    return "".join(said)


def start(command, environment):
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def by_launcher(hosts, gyre, program, settings):
    """`gyre run` on one host: the secret is in memory that ranks inherit."""
    copy = os.path.join(hosts.folder, "run-secret")
    script = ('if [ "$GYRE_RANK" = 0 ]; then cat "/proc/$$/fd/$GYRE_RENDEZVOUS_FD" > "$0"; fi; '
              'exec "$@"')
    words = [gyre, "run", "-n", "3", "sh", "-c", script, copy, program, TEXT]
    said = finish([start(hosts.on(0, words), clean(**settings))])
    return read_when_there(copy, SECRET_BYTES)[RUN_SECRET_AT:RUN_SECRET_AT + SECRET_BYTES], said


def by_hand(hosts, program, settings, **meeting):
    ranks = []
    for rank in range(4):
        environment = clean(GYRE_RANK=str(rank), GYRE_SIZE="4", GYRE_LOCAL_RANK=str(rank % 2),
                            GYRE_LOCAL_SIZE="2", GYRE_SOCKET_IFNAME=two_hosts.INTERFACE,
                            **settings, **meeting)
        ranks.append(start(hosts.on(rank // 2, [program, TEXT]), environment))
    return ranks


def by_file(hosts, _, program, settings):
    """On two hosts that share a file with the id."""
    path = os.path.join(hosts.folder, "id")
    ranks = by_hand(hosts, program, settings, GYRE_RENDEZVOUS_FILE=path)
    secret = read_when_there(path, ID_BYTES)[ID_SECRET_AT:ID_SECRET_AT + SECRET_BYTES]
    return secret, finish(ranks)


def by_address(hosts, _, program, settings):
    """On two hosts, whose ranks get the id over the network by a secret of the user's."""
    said = finish(by_hand(hosts, program, settings, GYRE_RENDEZVOUS_SECRET_FILE=hosts.secret,
                          GYRE_RENDEZVOUS_ADDRESS=f"{two_hosts.ADDRESSES[0]}:{PORT}"))
    with open(hosts.secret, "rb") as file:
        return file.read(), said


def main(gyre, program):
    if why_not := two_hosts.why_not():
        print(f"not run: {why_not}")
        return SKIPPED
    forms_are_found()
    hosts = two_hosts.TwoHosts(f"wire{os.getpid()}")
    try:
        pid = hosts.first_process(0)
        for run, device in ((by_launcher, "lo"), (by_file, two_hosts.INTERFACE),
                            (by_address, two_hosts.INTERFACE)):
            for security in ("ticket", "tls"):
                record = capture.Capture(pid, device)
                try:
                    secret, said = run(hosts, gyre, program, {"GYRE_TCP_SECURITY": security})
                finally:
                    record.end()
                streams = list(record.streams().values())
                seen = streams + record.raw()
                what = f"{run.__name__}, {security}"
                print(f"{what}: {len(record.packets)} packets, {len(streams)} streams, "
                      f"{sum(map(len, streams))} bytes", flush=True)
                assert (LOG_LINE in said) == (security == "tls"), said
                assert len(secret) >= SECRET_BYTES and not holds(seen, forms(secret)), what
                # What is recorded are the data connections, and the others where they use TCP.
                assert holds(seen, [TICKET]), what
                assert run is by_launcher or holds(seen, [HELLO]), what
                assert holds(seen, [TEXT[:16].encode()]) == (security == "ticket"), what
                assert sum(map(len, streams)) > 1 << 20, what
    finally:
        hosts.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(os.path.abspath, sys.argv[1:3])))
