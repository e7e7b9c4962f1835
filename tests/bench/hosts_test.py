"""bench/compare/hosts.py: its model of a link, and a run over simulated hosts, which leaves nothing
behind. Times are not tested. hosts_test.py SCRIPT BUILD [unittest arguments]"""
import os
import re
import signal
import subprocess
import sys
import time
import unittest

SCRIPT, BUILD = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, os.path.dirname(SCRIPT))
import hosts  # noqa: E402
import two_hosts  # noqa: E402  hosts.py has put its folder there
from processes import below, is_alive  # noqa: E402

PATIENCE_S = 120
NEAR = "4 hosts of 2, 2, 2, 2 ranks, rings in the order 0 4 1 5 2 6 3 7\n"
APART = "8 hosts of 1, 1, 1, 1, 1, 1, 1, 1 ranks, rings in rank order\n"


def command(*options):
    return [sys.executable, SCRIPT, "--build", BUILD, *options]


def run(*options, **environment):
    return subprocess.run(command(*options), capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment})


class Model(unittest.TestCase):
    def modelled(self, log, algorithm, rates):
        """Milliseconds for 8 MiB."""
        options = hosts.argparse.Namespace(build=BUILD, hosts=4, ranks_per_host=2)
        layout = hosts.Layout(4, log)
        return hosts.model_ms(hosts.plan_of(options, algorithm, 8 << 20, layout), layout, rates)

    def test_the_busiest_link_carries_what_the_formulas_say(self):
        size, ranks, per_ms = 8 << 20, 8, 100e6 / 8 / 1e3 * 1448 / 1514
        equal = ["100mbit"] * 4
        for log, algorithm, carried in (
                (APART, "ring", 2 * 2 * (ranks - 1) / ranks),
                (NEAR, "ring", 2 * (ranks - 1) / ranks),
                (NEAR, "hierarchical", 2 * (4 - 1) / 4)):
            self.assertAlmostEqual(self.modelled(log, algorithm, equal), carried * size / per_ms,
                                   places=3, msg=(log, algorithm))

    def test_the_slowest_link_counts(self):
        equal = self.modelled(NEAR, "ring", ["100mbit"] * 4)
        unequal = self.modelled(NEAR, "ring", ["100mbit", "100mbit", "50mbit", "1gbit"])
        self.assertAlmostEqual(unequal, 2 * equal)

    def test_the_choice_is_read_from_the_log(self):
        line = "all ranks choose {} with simple for all_reduce of {} bytes and the like\n"
        log = line.format("oneshot", 8) + line.format("hierarchical", 4096)
        self.assertEqual(hosts.chosen_algorithm(log, 4096), "hierarchical")
        self.assertEqual(hosts.chosen_algorithm(log, 8), "oneshot")
        with self.assertRaisesRegex(RuntimeError, "does not say"):
            hosts.chosen_algorithm("", 8)


class Script(unittest.TestCase):
    def test_options_that_make_no_sense_are_refused(self):
        for given in (("--rates", "fast"), ("--rates", "1gbit,1gbit"), ("--stepfactor", "1"),
                      ("--rounds", "0")):
            done = run(*given)
            self.assertEqual(done.returncode, 2, given)
            self.assertIn(given[0], done.stderr)

    def test_it_says_why_it_cannot_be_measured(self):
        done = run(PATH="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "hosts.py: (there is no|it takes root)")

    @unittest.skipIf(two_hosts.why_not(), "no hosts can be made here")
    def test_each_way_has_a_row_and_the_algorithm_that_it_names(self):
        done = run("--hosts", "2", "--rates", "1gbit", "-b", "2M", "-e", "2M", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = re.findall(r"^ +2097152  (\w+) +(\w+) ", done.stdout, re.M)
        self.assertEqual(rows, [("rank", "ring"), ("ring", "ring"),
                                ("hierarchical", "hierarchical"), ("choice", "hierarchical")])

    @unittest.skipIf(two_hosts.why_not(), "no hosts can be made here")
    def test_ended_early_it_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(command("--rates", "1mbit"), text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as script:
                deadline = time.monotonic() + PATIENCE_S
                started = []
                # Of each host and the switch: unshare, sleep; of each rank: nsenter, the rank.
                while script.poll() is None and time.monotonic() < deadline and len(started) < 26:
                    started = below(script.pid)
                    time.sleep(0.02)
                script.send_signal(number)
                script.communicate(timeout=PATIENCE_S)
            self.assertGreaterEqual(len(started), 26)
            self.assertNotEqual(script.returncode, 0)
            # The last ones are gone when the kernel has taken their host apart.
            while time.monotonic() < deadline and any(map(is_alive, started)):
                time.sleep(0.02)
            self.assertFalse([pid for pid in started if is_alive(pid)])


if __name__ == "__main__":
    unittest.main()
