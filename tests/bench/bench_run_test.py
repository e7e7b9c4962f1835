"""all_reduce_perf, run as users run it: threads, grouped ranks, processes and all of them together;
exit codes and files. bench_run_test.py GYRE ALL_REDUCE_PERF [unittest arguments]."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

GYRE = PERF = ""
PATIENCE_S = 100


def perf(*arguments, processes=1, **environment):
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("GYRE_", "NCCL_"))}
    launcher = [GYRE, "run", "-n", str(processes)] if processes > 1 else []
    done = subprocess.run([*launcher, PERF, *arguments], capture_output=True, text=True,
                          timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
                          env={**clean, "GYRE_SOCKET_IFNAME": "lo", **environment})
    # gyre run puts the rank before each line.
    lines = [line.split("] ", 1)[1] if launcher and line.startswith("[") else line
             for line in done.stdout.splitlines()]
    return done.returncode, lines, done.stderr


def rows(lines):
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


class AllReducePerf(unittest.TestCase):
    def check_run(self, arguments, ranks, count, **how):
        code, lines, said = perf(*arguments.split(), **how)
        self.assertEqual(code, 0, "\n".join(lines) + said)
        self.assertEqual(sum(line.startswith("#  Rank") for line in lines), ranks)
        self.assertEqual(len(rows(lines)), count)
        heading = next(line.split()[1:] for line in lines if line.split()[1:2] == ["size"])
        for row in rows(lines):
            wrong = [value for name, value in zip(heading, row) if name == "#wrong"]
            self.assertEqual(wrong, ["0", "0"], row)
        self.assertIn("# Out of bounds values : 0 OK", lines)
        return rows(lines)

    def test_ranks_are_threads_grouped_processes_or_all_of_them(self):
        sizes = "-b 4 -e 64K -f 128 -n 2"
        self.check_run(sizes, 1, 3)
        self.check_run(sizes + " -t 2", 2, 3)
        self.check_run(sizes + " -g 3", 3, 3)
        self.check_run(sizes + " -t 2 -p 1", 2, 3)
        self.check_run(sizes, 2, 3, processes=2)
        self.check_run(sizes + " -t 2 -g 2", 8, 3, processes=2)

    def test_every_type_is_right_and_shown_by_its_name(self):
        found = self.check_run("-b 4K -e 4K -n 1 -d all -t 2", 2, 12)
        self.assertEqual([row[2] for row in found],
                         "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 "
                         "f8e5m2".split())
        self.assertEqual([int(row[1]) for row in found[:4]], [4096, 4096, 1024, 1024])

    def test_every_operation_of_integers_is_right(self):
        found = self.check_run("-b 4K -e 4K -n 1 -o all -d int32 -t 2", 2, 9)
        self.assertEqual([row[3] for row in found],
                         "sum prod max min avg mulsum band bor bxor".split())

    def test_groups_streams_barriers_and_odd_addresses_work(self):
        for extra in ("-m 3", "-y 0", "-z 1", "-z 2 -y 0", "-z 3", "-u 1", "-c 3", "-N 2"):
            self.check_run("-b 1K -e 1K -n 2 -t 2 " + extra, 2, 2 if "-N" in extra else 1)

    def test_a_bandwidth_that_is_not_reached_is_exit_code_1(self):
        code, lines, _ = perf("-b", "8", "-e", "8", "-n", "1", "-t", "2", GYRE_TESTS_MIN_BW="1e9")
        self.assertEqual(code, 1)
        self.assertTrue(any(line.startswith("# Avg bus bandwidth") and line.endswith("FAILED")
                            for line in lines))
        code, _, said = perf("-b", "8", "-e", "8", "-n", "1", NCCL_TESTS_MIN_BW="0")
        self.assertEqual(code, 0, said)
        self.assertNotIn("GYRE_TESTS", said)

    def test_a_wrong_command_line_is_exit_code_2_and_one_line(self):
        code, lines, said = perf("--itres", "5", processes=2)
        self.assertEqual((code, lines), (2, []))
        self.assertEqual(said.count("did you mean --iters?"), 1)
        self.assertEqual(perf("-G", "1")[0], 2)

    def test_a_launcher_that_says_half_is_exit_code_3_and_told(self):
        code, _, said = perf("-b", "8", "-e", "8", RANK="0")
        self.assertEqual(code, 3)
        self.assertIn("WORLD_SIZE", said)

    def test_the_files_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            results, plot = os.path.join(folder, "a.json"), os.path.join(folder, "a.svg")
            self.check_run(f"-b 8 -e 512 -f 8 -n 5 --stats -J {results} --plot {plot}", 2, 3,
                           processes=2)
            with open(results) as file:
                document = json.load(file)
            with open(plot) as file:
                self.assertEqual(file.read().count("<circle"), 3 * 2 * 2)
        self.assertEqual(len(document["config"]["devices"]), 2)
        self.assertEqual([row["size"] for row in document["results"]], [8, 64, 512])
        times = document["results"][0]["in_place_per_iter"]
        self.assertEqual(len(times["times_us"]), 5)
        by_process = times["per_process_max_times_us"]
        self.assertEqual(times["times_us"], [max(pair) for pair in zip(*by_process)])
        self.assertLessEqual(times["min_us"], times["p50_us"])
        self.assertLessEqual(times["p50_us"], times["p99_us"])

    def test_cold_buffers_give_right_results_too(self):
        code, lines, said = perf("-b", "64K", "-e", "64K", "-n", "3", "-t", "2", "--cold")
        if "--cold needs" in said:
            self.skipTest("not enough memory to exceed the last-level cache")
        self.assertEqual(code, 0, said)
        self.assertEqual(rows(lines)[0][8], "0")

    def test_buffers_of_malloc_give_right_results_too(self):
        code, lines, said = perf("-b", "8", "-e", "1M", "-f", "16", "-n", "3", "-t", "2",
                                 "--device", "host", "--plain_memory")
        self.assertEqual(code, 0, said)
        self.assertIn("buffers come from malloc", "\n".join(lines))
        self.assertEqual([row[8] for row in rows(lines)], ["0"] * 5)


if __name__ == "__main__":
    GYRE, PERF = sys.argv[1], sys.argv[2]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
