#!/usr/bin/env python3
"""Runs the benchmark under tight system limits and expects a right result or a clear error.

usage: limits_test.py GYRE ALL_REDUCE_PERF
"""
import os
import resource
import subprocess
import sys
import tempfile

BENCH = ["-b", "8", "-e", "1M", "-f", "64", "-n", "5"]


def run(command, limit=None, environment=None):
    """(exit code, everything printed). Ends by itself, or it fails the test."""
    def apply():
        if limit:
            resource.setrlimit(limit[0], (limit[1], limit[1]))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, preexec_fn=apply,
                          env=dict(os.environ, GYRE_SOCKET_IFNAME="lo", **(environment or {})))
    return done.returncode, done.stdout


def expect(name, good, output):
    print(("ok   " if good else "FAIL ") + name)
    if not good:
        print(output[-3000:])
    return good


def main():
    gyre, perf = sys.argv[1:]
    two = [gyre, "run", "-n", "2", perf, *BENCH]
    threads = [perf, "-t", "4", *BENCH]
    good = []

    def completes(name, command, limit=None, environment=None):
        code, output = run(command, limit, environment)
        good.append(expect(name, code == 0 and "Out of bounds values : 0 OK" in output, output))

    def refuses(name, command, word, environment=None, limit=None):
        code, output = run(command, limit, environment)
        # A signal would be a crash: gyre run says 128 + n, Python says -n.
        good.append(expect(name, 0 < code < 128 and word in output, output))

    for transport in ("shm", "tcp"):
        chosen = {"GYRE_TRANSPORT": transport}
        completes(f"64 descriptors, {transport}", two, (resource.RLIMIT_NOFILE, 64), chosen)
        completes(f"no locked memory, {transport}", two, (resource.RLIMIT_MEMLOCK, 0), chosen)
        completes(f"64 descriptors, threads, {transport}", threads, (resource.RLIMIT_NOFILE, 64),
                  chosen)
    refuses("10 descriptors", two, "Too many open files", limit=(resource.RLIMIT_NOFILE, 10))
    for name, value in (("GYRE_TIMEOUT", "4abc"), ("GYRE_ALGO", "rnig"), ("GYRE_PROTO", ""),
                        ("GYRE_TRANSPORT", "smh"), ("GYRE_DEBUG", "LOUD"),
                        ("GYRE_DEBUG_SUBSYS", "TUNNING")):
        refuses(f'{name}="{value}"', two, name, {name: value})
    for name, options in (("read-only", "ro"), ("full", "size=4k")):
        fill = "" if options == "ro" else "head -c 4096 /dev/zero > /dev/shm/filling;"
        setup = f'mount -t tmpfs -o {options} gyre-test /dev/shm && {fill} exec "$@"'
        private = ["unshare", "--mount", "--map-root-user", "sh", "-c", setup, "sh"]
        if run([*private, "true"])[0] != 0:
            print(f"left out, no mount namespace may be made here: /dev/shm {name}")
            continue
        completes(f"/dev/shm {name}", [*private, *two], environment={"GYRE_TRANSPORT": "shm"})
    refuses("line protocol over tcp", two, "GYRE_PROTO",
            {"GYRE_PROTO": "LL", "GYRE_TRANSPORT": "tcp"})
    code, output = run(two, environment={"GYRE_TIMEOT": "5"})
    good.append(expect("a misspelt variable is named", code == 0 and
                       "did you mean GYRE_TIMEOUT?" in output, output))
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"not an id")
        file.flush()
        refuses("malformed rendezvous file", [perf, *BENCH], file.name,
                {"GYRE_RENDEZVOUS_FILE": file.name, "GYRE_RANK": "1", "GYRE_SIZE": "2",
                 "GYRE_INIT_TIMEOUT": "2"})
    print(f"{sum(good)} of {len(good)} good")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
