"""pipeline_bubble's figures: their formulas, and that no step is shorter than its schedule allows.
pipeline_bubble_test.py GYRE PROGRAM"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

GYRE, PROGRAM = "", ""


def run(*arguments, processes=0):
    launcher = [GYRE, "run", "-n", str(processes), "--timeout", "30"] if processes else []
    return subprocess.run([*launcher, PROGRAM, *arguments], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL,
                          env={**os.environ, "GYRE_SOCKET_IFNAME": "lo"})


def measure(*arguments, **how):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        done = run("--rounds", "2", "--json", path, *arguments, **how)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}\n{done.stdout}\n{done.stderr}")
        with open(path, encoding="utf-8") as file:
            return json.load(file), done.stdout


class Bubble(unittest.TestCase):
    def check(self, row, stages):
        p, m = stages, row["micro_batches"]
        self.assertEqual(row["stages"], p)
        self.assertAlmostEqual(row["bubble"], 1 - row["ideal_ms"] / row["step_ms"])
        self.assertAlmostEqual(row["formula"], (p - 1) / (m + p - 1))
        self.assertAlmostEqual(row["ratio"], row["bubble"] / row["formula"])
        self.assertEqual(row["in_flight"], m if row["schedule"] == "gpipe" else min(p, m))

    def test_processes_take_as_long_as_the_schedule_at_the_least(self):
        rows, shown = measure("-m", "1", "4", "--forward-ms", "2", "--backward-ms", "3",
                              "--bytes", "5000", processes=2)
        self.assertEqual([(row["micro_batches"], row["schedule"]) for row in rows],
                         [(m, schedule) for m in (1, 4) for schedule in ("1f1b", "gpipe")])
        self.assertEqual(len(shown.splitlines()), 1 + len(rows), shown)
        for row in rows:
            self.check(row, 2)
            m = row["micro_batches"]
            self.assertEqual(row["ideal_ms"], 5 * m)
            self.assertGreaterEqual(row["step_ms_least"], 5 * (m + 1))
            self.assertGreaterEqual(row["naive_step_ms"], 5 * m * 2)
            self.assertGreaterEqual(row["bubble"], row["formula"])
            self.assertGreaterEqual(row["naive_bubble"], 1 / 2)

    def test_threads_that_compute(self):
        rows, _ = measure("-t", "3", "-m", "2", "-s", "1f1b", "--compute", "--forward-ms", "0.2",
                          "--backward-ms", "0.4")
        self.assertEqual([row["work"] for row in rows], ["compute"])
        self.check(rows[0], 3)
        self.assertGreater(rows[0]["ideal_ms"], 0)
        self.assertGreater(rows[0]["bubble"], 0)

    def test_what_makes_no_pipeline_is_refused(self):
        for arguments, says in ((["-t", "1"], "-t: 1"), (["-m", "0"], "-m: 0"),
                                (["-s", "naive"], "-s: naive"), (["--bytes", "4"], "--bytes")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(says, done.stderr)
        alone = run(processes=1)
        self.assertEqual(alone.returncode, 1)
        self.assertIn("at least 2 stages", alone.stderr)


if __name__ == "__main__":
    GYRE, PROGRAM = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
