"""Jobs over a plug-in, docs/examples/unix_transport.c: the perf programs check every element, the
log says which transport is used, and a library that cannot be used is an error that says why.
plugin_run_test.py GYRE BENCH_FOLDER LIBRARY [unittest arguments]"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GYRE, BENCH, LIBRARY = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
PATIENCE_S = 60


def run(ranks, *command, **environment):
    return subprocess.run([GYRE, "run", "-n", str(ranks), "--timeout", "50", *command],
                          capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment})


def perf(name):
    return os.path.join(BENCH, name)


class Jobs(unittest.TestCase):
    def test_collectives_and_sends_are_right(self):
        for name, ranks in (("all_reduce_perf", 2), ("all_reduce_perf", 3), ("alltoall_perf", 3),
                            ("sendrecv_perf", 2)):
            done = run(ranks, perf(name), "-b", "8", "-e", "1M", "-f", "32", "-n", "3", "-w", "1",
                       "-c", "1", GYRE_TRANSPORT_PLUGIN=LIBRARY, GYRE_TRANSPORT="unix",
                       GYRE_DEBUG="INFO", GYRE_DEBUG_SUBSYS="GRAPH")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("Out of bounds values : 0 OK", done.stdout)
            self.assertRegex(done.stderr, r"rank 0 to ranks? 1.*: unix: same host, by its plug-in")

    def test_a_plugin_is_not_taken_before_other_transports_unless_it_is_named(self):
        done = run(2, perf("all_reduce_perf"), "-b", "8", "-e", "8", "-n", "1", "-w", "1",
                   GYRE_TRANSPORT_PLUGIN=LIBRARY, GYRE_DEBUG="INFO", GYRE_DEBUG_SUBSYS="GRAPH")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "rank 0 to rank 1: shm: .*; then unix: same host")

    def test_a_killed_rank_is_an_error_at_the_other_one(self):
        environment = {**os.environ, "GYRE_TRANSPORT_PLUGIN": LIBRARY, "GYRE_TRANSPORT": "unix",
                       "GYRE_RANK": "", "GYRE_SIZE": "2", "GYRE_LOCAL_SIZE": "2"}
        with tempfile.TemporaryDirectory() as folder:
            environment["GYRE_RENDEZVOUS_FILE"] = os.path.join(folder, "id")
            ranks = [subprocess.Popen(
                [perf("all_reduce_perf"), "-b", "1M", "-e", "1M", "-n", "1000000"], text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env={**environment, "GYRE_RANK": str(rank), "GYRE_LOCAL_RANK": str(rank)})
                for rank in range(2)]
            time.sleep(2)
            ranks[1].send_signal(signal.SIGKILL)
            said = ranks[0].communicate(timeout=PATIENCE_S)[1]
            ranks[1].communicate(timeout=PATIENCE_S)
        self.assertNotEqual(ranks[0].returncode, 0)
        self.assertRegex(said, "rank 1")


class Refusals(unittest.TestCase):
    def refused(self, **environment):
        done = run(2, perf("all_reduce_perf"), "-b", "8", "-e", "8", **environment)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_a_library_that_cannot_be_used_is_named_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "text.so")
            with open(text, "w", encoding="ascii") as file:
                file.write("no library\n")
            copy = os.path.join(folder, "copy.so")
            shutil.copy(LIBRARY, copy)
            for libraries, why in (
                    ("/nowhere/lib.so", "/nowhere/lib.so cannot be loaded: .*No such file"),
                    (text, "text.so cannot be loaded: "),
                    ("lib.so", "lib.so is not an absolute path"),
                    (f"{LIBRARY}:{copy}", f"copy.so has the name unix, as {re.escape(LIBRARY)} ")):
                self.assertRegex(self.refused(GYRE_TRANSPORT_PLUGIN=libraries), why)

    def test_a_name_that_no_library_has_is_refused_with_those_that_there_are(self):
        said = self.refused(GYRE_TRANSPORT_PLUGIN=LIBRARY, GYRE_TRANSPORT="unicorn")
        self.assertRegex(said, '"unicorn" is not a transport; there are .*tcp, .*unix')

    def test_a_library_of_another_kind_is_refused(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            other = next((line.split()[-1] for line in maps
                          if re.search(r"/libc\.so|/libc-", line)), None)
        if other is None:
            self.skipTest("libc's file was not found")
        self.assertRegex(self.refused(GYRE_TRANSPORT_PLUGIN=other),
                         "has no function gyreTransportPlugin")

    def test_all_ranks_need_the_same_plugins(self):
        done = run(2, "sh", "-c",
                   f'[ "$GYRE_RANK" = 0 ] && export GYRE_TRANSPORT_PLUGIN={LIBRARY}; '
                   f'exec {perf("all_reduce_perf")} -b 8 -e 8')
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "transports=self")


if __name__ == "__main__":
    unittest.main()
