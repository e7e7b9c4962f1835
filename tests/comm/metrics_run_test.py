#!/usr/bin/env python3
"""GYRE_METRICS of real jobs: a scraper reads right, well-formed metrics; no client disturbs the
job; an address that is in use or invalid is refused by name.

usage: metrics_run_test.py STUCK_RANK
"""
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?"
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ({NUMBER})")


def parse(text):
    """{(name, labels): value} of an exposition in format 0.0.4, which must be strictly well-formed:
    HELP and TYPE once and before the samples, families in one piece, no sample twice."""
    assert text.endswith("\n") and "\n\n" not in text, "lines end with one line feed"
    samples, helped, family, kind = {}, set(), None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family, words = re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line).groups()
            assert family not in helped and "\\" not in words, line
            helped.add(family)
            kind = None
        elif line.startswith("# TYPE "):
            named, kind = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line).groups()
            assert named == family, f"{line} stands in {family}"
            assert (kind == "counter") == family.endswith("_total"), line
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"no sample: {line!r}"
            assert kind and match.group(1) == family, f"{line} stands in {family}"
            labels = re.findall(LABEL, match.group(2) or "")
            assert len({name for name, _ in labels}) == len(labels), line
            key = (family, tuple(sorted(labels)))
            assert key not in samples, f"twice: {line}"
            samples[key] = float(match.groups()[-1])
            assert samples[key] >= 0
    return samples


def the_parser_is_strict(_):
    head = "# HELP a_b words\n# TYPE a_b gauge\n"
    good = head + 'a_b{c="d\\\\\\"\\n",e=""} 1.5e-05\n# HELP c_total w\n# TYPE c_total counter\n'
    assert list(parse(good).values()) == [1.5e-05]
    for bad in ("", head + "a_b 1", head + "a_b 1\n\n", "a_b 1\n", "# TYPE a_b gauge\na_b 1\n",
                "# HELP a_b words\na_b 1\n", head + "a_b 1\na_b 2\n", head + "b 1\n",
                head + head, head + 'a_b{c="d"e="f"} 1\n', head + 'a_b{c="d",c="e"} 1\n',
                head + 'a_b{c="d\\x"} 1\n', head + 'a_b{c="d"d"} 1\n', head + "a_b{} 1\n",
                head + "a_b one\n", head + "a_b  1\n", head + "a_b -1\n",
                "# HELP a_b words\n# TYPE a_b counter\na_b 1\n"):
        try:
            parse(bad)
        except (AssertionError, AttributeError):
            continue
        raise AssertionError(f"it takes {bad!r}")


def values(samples, name, **labels):
    """The values of a family's samples with these labels."""
    wanted = set(labels.items())
    return [value for (family, has), value in samples.items() if family == name and
            wanted <= set(has)]


def connect(place):
    family = socket.AF_INET if isinstance(place, tuple) else socket.AF_UNIX
    visitor = socket.socket(family, socket.SOCK_STREAM)
    visitor.settimeout(10)
    visitor.connect(place)
    return visitor


def hear(visitor):
    parts = []
    while True:
        part = visitor.recv(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


def scrape(place):
    with connect(place) as visitor:
        visitor.sendall(REQUEST)
        head, _, body = hear(visitor).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.0 200 OK", lines
    fields = dict(line.split(": ", 1) for line in lines[1:])
    assert fields == {"Content-Type": "text/plain; version=0.0.4; charset=utf-8",
                      "Content-Length": str(len(body)), "Connection": "close"}, fields
    return parse(body.decode())


def free_port(count):
    """The first of `count` ports in a row that nobody has now."""
    for port in range(20000 + os.getpid() % 10000, 32000, 16):
        taken = []
        try:
            for i in range(count):
                one = socket.socket()
                taken.append(one)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("127.0.0.1", port + i))
            return port
        except OSError:
            continue
        finally:
            for one in taken:
                one.close()
    raise AssertionError("no ports in a row are free")


def counts(seed, how_many):
    """What stuck_rank draws."""
    state, drawn = seed, []
    for _ in range(how_many):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        drawn.append([1, 2, 1000, 5000, 70000, 1 << 18][(state >> 33) % 6])
    return drawn


class Job:
    """Two ranks, the second of which is the victim of stuck_rank's mode."""

    def __init__(self, program, mode, metrics, calls=20, prefix="GYRE_", size="SIZE"):
        self.ranks = []
        for rank in range(2):
            environment = dict(os.environ, GYRE_SOCKET_IFNAME="lo", GYRE_TIMEOUT="100",
                               GYRE_DEBUG="INFO", GYRE_DEBUG_SUBSYS="INIT", GYRE_METRICS=metrics)
            environment |= {f"{prefix}RANK": str(rank), f"{prefix}{size}": "2",
                            f"{prefix}LOCAL_RANK": str(rank), f"{prefix}LOCAL_{size}": "2"}
            self.ranks.append(subprocess.Popen(
                [program, mode, "1", str(calls), "7", f"metrics-{os.getpid()}-{mode}-{metrics}"],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.communicate()

    def line(self, rank, stream="stdout"):
        pipe = getattr(self.ranks[rank], stream)
        assert select.select([pipe], [], [], PATIENCE_S)[0], f"rank {rank} says nothing"
        return pipe.readline()

    def wait_until_here(self):
        for rank in range(2):
            line = self.line(rank)
            assert line == "here\n", line


def until(holds):
    """What `holds` answers once that is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        answer = holds()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError("it does not come to that")


def values_follow_the_calls(program):
    port = free_port(2)
    calls = 20
    with Job(program, "asleep", str(port), calls) as job:
        job.wait_until_here()
        drawn = counts(7, calls)
        waiting = until(lambda: (s := scrape(("127.0.0.1", port))) and
                        values(s, "gyre_wait_seconds") and s)
        for rank, samples in enumerate([waiting, scrape(("127.0.0.1", port + 1))]):
            assert values(samples, "gyre_build_info") == [1]
            assert values(samples, "gyre_communicators") == [2]
            assert values(samples, "gyre_communicator_size", rank=str(rank)) == [2, 2]
            assert values(samples, "gyre_communicator_failed", code="Success") == [0, 0]
            assert sorted(values(samples, "gyre_operations_total", collective="AllReduce",
                                 rank=str(rank))) == [1, calls]
            assert sorted(values(samples, "gyre_operation_bytes_total", rank=str(rank))) == \
                sorted([12, 4 * sum(drawn)])
        assert values(scrape(("127.0.0.1", port + 1)), "gyre_wait_seconds") == []
        [first] = values(waiting, "gyre_wait_seconds", rank="0", phase="moving", what="data",
                         peer="1")
        time.sleep(1)
        [later] = values(scrape(("127.0.0.1", port)), "gyre_wait_seconds", peer="1")
        assert 0.9 < later - first < 10, (first, later)


def failures_have_their_code(program):
    with tempfile.TemporaryDirectory() as folder:
        with Job(program, "asleep", f"unix:{folder}/%p") as job:
            job.wait_until_here()
            place = f"{folder}/{job.ranks[0].pid}"
            job.ranks[1].kill()
            samples = until(lambda: (s := scrape(place)) and
                            1 in values(s, "gyre_communicator_failed") and s)
            assert 1 in values(samples, "gyre_communicator_failed", code="RemoteError", rank="0")
            # What failed is not counted.
            assert sorted(values(samples, "gyre_operations_total")) == [1, 20]


def connecting_disturbs_nobody(program):
    port = free_port(2)
    place = ("127.0.0.1", port)
    with Job(program, "runs", str(port)) as job:
        job.wait_until_here()
        before = max(values(scrape(place), "gyre_operations_total"))
        slow = connect(place)
        slow.sendall(REQUEST[:9])
        with connect(place) as visitor:
            visitor.sendall(b"\x16\x03\x01\x00\n" * 300)
            assert hear(visitor).startswith(b"HTTP/1.0 400 ")
        crowd = [connect(place) for _ in range(200)]
        for visitor in crowd:
            try:
                visitor.sendall(REQUEST)
            except OSError:
                pass  # it was pushed out
        answered = 0
        for visitor in crowd:
            try:
                answered += hear(visitor).startswith(b"HTTP/1.0 200 OK")
            except OSError:
                pass
            visitor.close()
        # Eight may stay, and none is pushed out at once.
        assert answered >= 8, answered
        slow.settimeout(10)
        assert slow.recv(10) == b"", "the slow one was not dropped"
        samples = until(lambda: (s := scrape(place)) and
                        max(values(s, "gyre_operations_total")) > before and s)
        assert values(samples, "gyre_communicator_failed", code="Success") == [0, 0]
        assert all(process.poll() is None for process in job.ranks)
        print(f"{answered} of 200 that came at once were answered")


def local_ranks_of_launchers_count(program):
    port = free_port(2)
    with Job(program, "asleep", str(port), prefix="", size="WORLD_SIZE") as job:
        job.wait_until_here()
        for rank in range(2):
            samples = scrape(("127.0.0.1", port + rank))
            assert values(samples, "gyre_communicator_size", rank=str(rank)) == [2, 2]


def any_port_is_logged(program):
    with Job(program, "asleep", "0") as job:
        for _ in range(100):
            found = re.search(r"metrics at (127\.0\.0\.1):(\d+)/metrics", job.line(0, "stderr"))
            if found:
                break
        job.wait_until_here()
        samples = scrape((found.group(1), int(found.group(2))))
        assert values(samples, "gyre_communicators") == [2]


def what_is_wrong_is_refused(program):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for text, reason in [(taken, f"{taken} is taken"), ("on", 'GYRE_METRICS="on" is not'),
                             ("65536", 'GYRE_METRICS="65536" is not'), ("", 'GYRE_METRICS="" is'),
                             ("unix:x", 'GYRE_METRICS="unix:x" is not'),
                             ("203.0.113.1:1", "binding 203.0.113.1:1 for GYRE_METRICS")]:
            with Job(program, "asleep", text) as job:
                line = job.line(0)
                assert line.startswith("error ") and reason in line, (text, line)


def main(program):
    for test in (the_parser_is_strict, values_follow_the_calls, failures_have_their_code,
                 connecting_disturbs_nobody, local_ranks_of_launchers_count, any_port_is_logged,
                 what_is_wrong_is_refused):
        start = time.monotonic()
        test(program)
        print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
