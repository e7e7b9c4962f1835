"""tools/dev compare: a run with Gyre alone on tiny sizes, and what it does about ranks that compute
wrong results, end, or cannot be had. Times are not tested.
compare_run_test.py FOLDER_OF_COMPARE BUILD FAULTY_RANKS [unittest arguments]"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

COMPARE, BUILD, FAULTY = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, COMPARE)
import compare  # noqa: E402
import contenders  # noqa: E402
from interleaved import Measurement, Row  # noqa: E402
from rank_job import JobFailed, RankJob  # noqa: E402

PATIENCE_S = 120
START = contenders.Start(2, "shm", False, None)
SETTINGS = {"COMPARE_CORES": str(min(os.sched_getaffinity(0))), "COMPARE_MEMORY": "malloc",
            "COMPARE_REGION": "65536"}


def run(*words):
    return subprocess.run([sys.executable, os.path.join(COMPARE, "compare.py"), "--build", BUILD,
                           *words], capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL, check=False)


class Faulty(contenders.Contender):
    max_ranks = 2

    def command(self, start):
        return [FAULTY], {}


class Run(unittest.TestCase):
    def job(self, contender):
        contender.prepare(BUILD)
        job = RankJob(contender, START, SETTINGS)
        self.addCleanup(job.end)
        return job

    def faulty(self):
        job = RankJob(Faulty("faulty"), START, SETTINGS)
        self.addCleanup(job.kill)
        return job

    def test_all_collectives_of_gyre_are_measured_and_right(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.jsonl")
            done = run("--peers", "--sizes", "64", "4K", "--rounds", "1", "--budget", "1",
                       "--types", "float", "bfloat16", "--places", "out", "in", "--json", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path, encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
        self.assertEqual({row["collective"] for row in rows}, set(compare.COLLECTIVES))
        # Two sizes of two types: seven collectives in two places, two in one; and a barrier.
        self.assertEqual(len(rows), 2 * 2 * (7 * 2 + 2) + 1)
        for row in rows:
            self.assertGreater(row["us"]["gyre"], 0, row)
            self.assertGreater(row["p99_us"]["gyre"], 0, row)
            self.assertGreater(row["limits_us"]["line"], 0, row)
        self.assertIn("all_to_all, bfloat16, in place", done.stdout)

    def test_registered_memory_that_moves_and_is_written_gives_right_results_too(self):
        done = run("all_reduce", "all_gather", "--peers", "--sizes", "4K", "--rounds", "1",
                   "--budget", "1", "--memory", "registered", "--written", "--cold", "--ranks", "3",
                   "--cores", SETTINGS["COMPARE_CORES"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("registered memory, cold, inputs written anew", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^ +4092 ")  # 4096 bytes have no three equal parts

    def test_wrong_results_are_found(self):
        measurement = Measurement({"faulty": self.faulty()}, None,
                                  compare.arguments(["--budget", "1"]), lambda *_, **__: None)
        row = Row("all_reduce", "float", False, 64)
        measurement.run([row], 1)
        self.assertEqual(list(measurement.wrong), [("faulty", row)])
        self.assertGreater(measurement.wrong["faulty", row], 16)

    def test_what_a_library_lacks_is_said_and_ends_nothing(self):
        job = self.faulty()
        answers = job.ask("measure all_gather float out 64 1 1 1")
        self.assertEqual(answers, [{"cannot": "it has no such call"}] * 2)
        answers = job.ask("measure all_reduce bfloat16 out 64 1 1 1")
        self.assertEqual(answers, [{"cannot": "it adds no bfloat16"}] * 2)
        self.assertEqual(len(job.ask("measure all_reduce float out 64 1 3 2")[1]["us"]), 3)

    def test_ranks_that_end_fail_the_job_and_the_others_go_on(self):
        said = []
        jobs = {"gyre": self.job(contenders.Gyre()), "faulty": self.faulty()}
        measurement = Measurement(jobs, None, compare.arguments(["--budget", "1"]),
                                  lambda text, lasting=False: said.append(text))
        measurement.run([Row("broadcast", "float", True, 64)], 2)
        self.assertEqual(list(measurement.problems), ["faulty"])
        self.assertIn("a rank is gone", measurement.problems["faulty"])
        figures = measurement.figures[Row("broadcast", "float", True, 64)]
        self.assertEqual([list(each) for each in figures.us], [["gyre"], ["gyre"]])
        self.assertTrue(any("faulty is left out" in text for text in said), said)

    def test_a_program_that_does_not_start_is_quoted(self):
        class Broken(contenders.Contender):
            def command(self, start):
                return ["sh", "-c", "echo no such library >&2; exit 4"], {}
        with self.assertRaisesRegex(JobFailed, "(?s)exit code 4.*no such library"):
            RankJob(Broken("broken"), START, SETTINGS)

    def test_what_is_not_there_is_said_with_the_way_to_get_it(self):
        with self.assertRaisesRegex(contenders.Absent, "install a-package"):
            contenders.Mpi("mpi", "no-such-mpicc", "no-such-mpirun", "a-package").prepare(BUILD)
        with self.assertRaisesRegex(contenders.Absent, "no libgloo.a in /nonexistent"):
            contenders.Gloo(["/nonexistent"]).prepare(BUILD)
        done = run("--build", "/nonexistent", "--peers")
        self.assertEqual(done.returncode, 2)
        self.assertIn("gyre is left out: there is no /nonexistent", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
