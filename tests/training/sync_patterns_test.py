"""bench/training/sync_patterns: each pattern leaves the right parameters on all ranks, and links of
sync_patterns.py carry the bytes that its formulas say. Times are not tested.
sync_patterns_test.py GYRE PROGRAM SCRIPT [unittest arguments]"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

GYRE, PROGRAM, SCRIPT = (sys.argv.pop(1) for _ in range(3))
sys.path.insert(0, os.path.dirname(SCRIPT))
import sync_patterns  # noqa: E402
import two_hosts  # noqa: E402  sync_patterns.py has put its folder there

PATIENCE_S = 60
PATTERNS = ["ring", "server", "star"]


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL,
                          env={**os.environ, "GYRE_SOCKET_IFNAME": "lo", **environment})


class Program(unittest.TestCase):
    def find(self, *options, ranks):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "found.json")
            done = run(GYRE, "run", "-n", str(ranks), "--timeout", "50", PROGRAM, "--rounds", "2",
                       *options, "--json", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(file, encoding="utf-8") as found:
                return done.stdout, json.load(found)

    def test_every_pattern_syncs_the_model_on_all_ranks(self):
        for ranks, *options in ((2, "--megabytes", "0.25"),
                                (3, "--megabytes", "0.3", "--piece-kib", "7"),  # a short last piece
                                (3, "--megabytes", "0.01", "--piece-kib", "64")):  # one piece
            table, found = self.find(*options, ranks=ranks)
            self.assertEqual((found["ranks"], found["rounds"]), (ranks, 2))
            self.assertEqual([one["pattern"] for one in found["patterns"]], PATTERNS)
            for one in found["patterns"]:
                self.assertEqual(len(one["ms"]), 2)
                self.assertAlmostEqual(one["p50_ms"], sum(one["ms"]) / 2)
                self.assertAlmostEqual(
                    one["copies"], sync_patterns.formula_ms(one["pattern"], ranks, 1))
                self.assertRegex(table, rf"(?m)^(\[0\] )?{one['pattern']} +{one['copies']:.3f} ")

    def test_options_that_make_no_sense_are_refused(self):
        for option, value in (("--megabytes", "-1"), ("--piece-kib", "0"), ("--rounds", "0")):
            done = run(PROGRAM, option, value)
            self.assertEqual(done.returncode, 2, (option, value, done.stderr))
            self.assertIn(option, done.stderr)


class Formulas(unittest.TestCase):
    def test_they_are_those_of_the_claim(self):
        for ranks, ring, server, star in ((2, 1, 2, 1), (4, 1.5, 6, 3), (16, 1.875, 30, 15)):
            for pattern, copies in (("ring", ring), ("server", server), ("star", star)):
                self.assertAlmostEqual(sync_patterns.formula_ms(pattern, ranks, 10), 10 * copies)

    def test_a_ratio_is_that_of_the_median_to_the_formula(self):
        found = {"ranks": 4, "bytes": 1000, "plain_ms": [9, 10, 30], "patterns": [
            {"pattern": "ring", "copies": 1.5, "p50_ms": 18, "ms": [15, 18, 30]},
            {"pattern": "server", "copies": 6, "p50_ms": 60, "ms": [60, 60, 60]}]}
        ring, server = sync_patterns.results(found)
        self.assertAlmostEqual(ring["over_formula"], 18 / 15)
        self.assertEqual(ring["over_formula_interval"], [1, 2])
        self.assertAlmostEqual(server["over_formula"], 1)
        self.assertAlmostEqual(server["over_ring"], 60 / 18)


class Links(unittest.TestCase):
    def command(self, *options):
        build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(PROGRAM))))
        return [sys.executable, SCRIPT, "--build", build, *options]

    def test_options_that_make_no_sense_are_refused(self):
        for option, value in (("--rate", "fast"), ("--ranks", "1"), ("--rounds", "0")):
            done = run(*self.command(option, value))
            self.assertEqual(done.returncode, 2, (option, done.stderr))
            self.assertIn(option, done.stderr)

    def test_it_says_why_it_cannot_be_measured(self):
        done = run(*self.command(), PATH="/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "sync_patterns.py: (there is no|it takes root)")

    @unittest.skipIf(sync_patterns.why_not(), "no hosts can be made here")
    def test_the_servers_link_carries_what_the_formulas_say(self):
        ranks, megabytes, rounds = 3, 1, 2
        done = run(*self.command("--ranks", str(ranks), "--megabytes", str(megabytes), "--rounds",
                                 str(rounds), "--rate", "1gbit"))
        self.assertEqual(done.returncode, 0, done.stderr)
        sent = float(re.search(r"rank 0's link sent ([\d.]+) MB", done.stdout)[1]) * 1e6
        # As much in each direction: a ring's copies, and each of the others sends N - 1.
        copies = sync_patterns.formula_ms("ring", ranks, 1) + 2 * (ranks - 1)
        model = megabytes * (1 << 20)
        expected = copies * model * (rounds + 1 / 16)  # with the warm-up
        self.assertGreater(sent, expected)
        self.assertLess(sent, 1.1 * expected + 200e3)  # headers; what the ranks tell each other
        rows = re.findall(r"^ +3  (\w+) ", done.stdout, re.M)
        self.assertEqual(rows, PATTERNS)


if __name__ == "__main__":
    unittest.main()
