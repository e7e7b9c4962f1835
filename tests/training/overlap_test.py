"""bench/training/overlap: each mode makes its steps and reduces its gradients, over loopback and
over the shaped cable of overlap.py, which leaves nothing behind. Times are not tested.
overlap_test.py GYRE PROGRAM SCRIPT [unittest arguments]"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import two_hosts  # noqa: E402
from processes import below, is_alive  # noqa: E402

GYRE = PROGRAM = SCRIPT = ""
PATIENCE_S = 60
WAYS = [("bare", 0.25), ("compute", 0.25), ("afterwards", 0.25), ("overlapped", 0.25),
        ("overlapped", 0.1)]
TINY = ["--megabytes", "0.5", "--layers", "8", "--rounds", "2", "--bucket-mb", "0.25,0.1"]


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL,
                          env={**os.environ, "GYRE_SOCKET_IFNAME": "lo", **environment})


def find(*options, ranks=2):
    """The table of a job, and what it wrote down."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "found.json")
        done = run(GYRE, "run", "-n", str(ranks), "--timeout", "50", PROGRAM, *TINY, *options,
                   "--json", file)
        if done.returncode != 0:
            raise AssertionError(f"{done.args}\n{done.stdout}\n{done.stderr}")
        with open(file, encoding="utf-8") as found:
            return done.stdout, json.load(found)


class Ways(unittest.TestCase):
    def check(self, table, found, ranks):
        self.assertEqual([(way["way"], way["bucket_mb"]) for way in found["ways"]], WAYS)
        self.assertEqual((found["ranks"], found["layers"], found["rounds"]), (ranks, 8, 2))
        self.assertEqual(found["bytes"], 1 << 19)
        for way in found["ways"]:
            steps = 0 if way["way"] == "compute" else 2
            self.assertEqual(way["reduced_bytes"], steps * found["bytes"], way)
            self.assertLessEqual(way["least_ms"], way["p50_ms"])
            self.assertLessEqual(way["p50_ms"], way["most_ms"])
            self.assertRegex(table, rf"(?m)^(\[0\] )?{way['way']} +{way['bucket_mb']} ")
            self.assertEqual("shorter" in way, way["way"] in ("afterwards", "overlapped"))
            if found["compute"] == "sleep" and way["way"] != "bare":
                # No pass ends before its time.
                self.assertGreaterEqual(way["least_ms"], found["forward_ms"] + found["backward_ms"])
        by_name = {way["way"]: way for way in found["ways"]}  # the last one of a name
        last, after = by_name["overlapped"], by_name["afterwards"]
        self.assertAlmostEqual(last["shorter"], 1 - last["p50_ms"] / after["p50_ms"])
        self.assertAlmostEqual(last["exposed_ms"], last["p50_ms"] - by_name["compute"]["p50_ms"])
        self.assertAlmostEqual(last["hidden_share"],
                               1 - last["exposed_ms"] / by_name["bare"]["p50_ms"])
        sent = 2 * (ranks - 1) / ranks * found["bytes"]
        self.assertAlmostEqual(found["sent_gbit_per_s"],
                               sent * 8 / by_name["bare"]["p50_ms"] / 1e6)

    def test_each_way_reduces_what_it_should_and_passes_take_their_time(self):
        table, found = find("--forward-ms", "1", "--backward-ms", "4")
        self.check(table, found, 2)
        self.assertEqual((found["forward_ms"], found["backward_ms"]), (1, 4))

    def test_passes_may_be_products_and_follow_the_reduction(self):
        table, found = find("--compute", "matrix", ranks=3)
        self.check(table, found, 3)
        self.assertEqual(found["compute"], "matrix")
        self.assertGreater(found["backward_ms"], 0)
        self.assertAlmostEqual(found["forward_ms"], found["backward_ms"] / 2)

    def test_what_makes_no_sense_is_refused(self):
        for option, value in (("--layers", "0"), ("--megabytes", "-1"), ("--backward-ms", "soon"),
                              ("--forward-ms", "-3"), ("--compute", "think"), ("--rounds", "0"),
                              ("--bucket-mb", "4,0"), ("--bucket-mb", "none")):
            done = run(PROGRAM, option, value)
            self.assertEqual(done.returncode, 2, (option, value, done.stderr))
            self.assertIn(option, done.stderr)
        done = run(PROGRAM, "--layers", "4096", "--megabytes", "0.001")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("--megabytes", done.stderr)


class Cable(unittest.TestCase):
    def command(self, *options):
        build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(PROGRAM))))
        return [sys.executable, SCRIPT, "--build", build, *options]

    def test_a_rate_that_is_none_is_refused(self):
        for rate in ("fast", "0gbit", "-1gbit", "1gbps", "1e3bit"):
            done = run(*self.command("--rate", rate))
            self.assertEqual(done.returncode, 2, rate)
            self.assertIn("--rate", done.stderr)

    def test_it_says_why_it_cannot_be_measured(self):
        done = run(*self.command(), PATH="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "overlap.py: (there is no|it takes root)")

    @unittest.skipIf(two_hosts.why_not(), "no hosts can be made here")
    def test_what_is_reduced_crosses_the_cable(self):
        done = run(*self.command(*TINY, "--backward-ms", "2"))
        self.assertEqual(done.returncode, 0, done.stderr)
        carried, reduced = map(float, re.search(
            r"carried ([\d.]+) MB from rank 0 for ([\d.]+) MB", done.stdout).groups())
        self.assertGreater(reduced, 8 * 0.5)
        self.assertGreaterEqual(carried, reduced)

    @unittest.skipIf(two_hosts.why_not(), "no hosts can be made here")
    def test_ended_early_it_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(self.command(*TINY, "--backward-ms", "60000"), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as script:
                deadline = time.monotonic() + PATIENCE_S
                started = []
                while script.poll() is None and time.monotonic() < deadline and len(started) < 8:
                    started = below(script.pid)  # of each host: unshare, sleep, nsenter, the rank
                    time.sleep(0.02)
                script.send_signal(number)
                script.communicate(timeout=PATIENCE_S)
            self.assertGreaterEqual(len(started), 8)
            self.assertNotEqual(script.returncode, 0)
            # The last ones are gone when the kernel has taken their host apart.
            while time.monotonic() < deadline and any(map(is_alive, started)):
                time.sleep(0.02)
            self.assertFalse([pid for pid in started if is_alive(pid)])


if __name__ == "__main__":
    GYRE, PROGRAM, SCRIPT = (sys.argv.pop(1) for _ in range(3))
    unittest.main()
