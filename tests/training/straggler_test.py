"""Training with a slow rank: no mode exceeds its bound of staleness, each learns, and the straggler
is named. straggler_test.py PROGRAM"""
import json
import os
import subprocess
import sys
import unittest

PROGRAM = ""


def run(*options):
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "GYRE_SOCKET_IFNAME": "lo"}, check=False)


class Straggler(unittest.TestCase):
    def test_each_way_learns_within_its_bound_and_names_the_straggler(self):
        done = run("--ranks", "3", "--slow-rank", "1", "--slow-factor", "3", "--step-ms", "4",
                   "--seconds", "0.6", "--staleness", "0", "2", "--local-steps", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = {line["way"]: line for line in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(list(lines), ["synchronous", "staleness <= 0", "staleness <= 2",
                                       "local SGD, 4 steps"])
        for line in lines.values():
            self.assertLessEqual(line["staleness_most"], line["staleness_bound"], line)
            self.assertEqual(line["straggler"], 1, line)
            self.assertGreater(line["straggler_ms"], line["others_ms"], line)
            self.assertLess(line["losses"][-1], line["losses"][0], line)
        self.assertGreater(lines["staleness <= 2"]["staleness_most"], 0)

    def test_a_rank_that_is_none_is_refused(self):
        done = run("--ranks", "2", "--slow-rank", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--slow-rank is none of the ranks", done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
