"""Measurements on simulated hosts whose links tc shapes: when they cannot be made, how a run of
their ranks ends, and that no host is left behind."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from rounds import ROOT

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import two_hosts  # noqa: E402  pylint: disable=wrong-import-position


def why_not(programs):
    """Why it cannot be measured here with these programs, or nothing."""
    for path in programs:
        if not os.access(path, os.X_OK):
            return f"there is no {path}"
    return two_hosts.why_not() or (None if shutil.which("tc") else "there is no tc")


def await_ranks(processes, timeout, way, output):
    """Until all have ended well; else an error with the end of what they wrote to `output`."""
    codes = two_hosts.wait_all(processes, time.monotonic() + timeout)
    if any(code != 0 for code in codes):
        said = pathlib.Path(output).read_text(encoding="utf-8")
        raise RuntimeError(f"{way}: the ranks ended with {codes} (None: not within {timeout} s)\n"
                           f"{said[-2000:]}")


def measure_on(script, make_hosts, measure):
    """Calls measure(hosts). Hosts end with it, also if it is interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    hosts = make_hosts()
    try:
        measure(hosts)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(f"{script}: {error}")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hosts.end()
