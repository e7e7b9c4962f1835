"""bench/compare, but for compare.py: how sizes become runs and rounds become medians, and that no
program runs beyond its time limit. compare_test.py FOLDER_OF_COMPARE [unittest arguments]."""
import argparse
import os
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, sys.argv.pop(1))
import one_way  # noqa: E402
import perf_programs  # noqa: E402
import rounds  # noqa: E402
import settings  # noqa: E402


def options(**values):
    return argparse.Namespace(**{"minbytes": 8, "maxbytes": 64 << 20, "stepfactor": 2, "ranks": 1,
                                 "rounds": 3, **values})


class Compare(unittest.TestCase):
    def test_a_collective_is_known_however_it_is_written(self):
        named = rounds.collective_of(settings.COLLECTIVES)
        for text in ("all_reduce", "allreduce", "AllReduce", "all-reduce"):
            self.assertEqual(named(text), "all_reduce")
        self.assertEqual(named("all_to_all"), "alltoall")
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "no collective is"):
            named("all")

    def test_bands_cover_every_size_once_and_in_order(self):
        for given in (options(), options(minbytes=1000, stepfactor=3), options(maxbytes=8)):
            sizes, size = [], given.minbytes
            while size <= given.maxbytes:
                sizes.append(size)
                size *= given.stepfactor
            covered = []
            for least, most, count in rounds.bands(given):
                self.assertGreater(count, 0)
                while least <= most:
                    covered.append(least)
                    least *= given.stepfactor
            self.assertEqual(covered, sizes)

    def test_the_interval_of_a_ratio_holds_it_and_narrows(self):
        def interval(count):
            first, second, key = rounds.Series(), rounds.Series(), (8, False)
            first.p50[key] = [10 + i % 3 for i in range(count)]
            second.p50[key] = [20 + i % 5 for i in range(count)]
            return rounds.ratio_interval(first, second, key)
        (low, high), (least, most) = interval(9), interval(900)
        self.assertTrue(low <= 11 / 22 <= high and least <= 11 / 22 <= most)
        self.assertGreater(high - low, most - least)

    def test_large_sizes_take_fewer_iterations(self):
        counts = [count for _, _, count in rounds.bands(options())]
        self.assertEqual(counts, sorted(counts, reverse=True))

    def test_a_series_is_the_median_of_its_rounds(self):
        series = rounds.Series()
        for p50, p99 in ((1, 10), (9, 90), (2, 20)):
            series.add([{"bytes": 8, "in_place": False, "p50_us": p50, "p99_us": p99}])
        self.assertEqual(series.median((8, False)), 2)
        self.assertEqual(series.tail((8, False)), 20)

    def test_sizes_are_read_as_the_programs_read_them(self):
        for text, size in (("8", 8), ("1.5K", 1536), ("64M", 64 << 20), ("1g", 1 << 30)):
            self.assertEqual(rounds.parse_size(text), size)

    def test_a_program_that_hangs_is_ended_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "mark")
            script = f"(sleep 2; touch {mark}) & sleep 600"
            began = time.monotonic()
            said = rounds.run_program(["sh", "-c", script], dict(os.environ), 0.3)
            self.assertIn("not done after", said)
            self.assertLess(time.monotonic() - began, 60)
            time.sleep(4)
            self.assertFalse(os.path.exists(mark))

    def test_settings_are_ranked_by_their_medians_the_fastest_first(self):
        slow, fast, absent = rounds.Series(), rounds.Series(), rounds.Series()
        for series, time_us in ((slow, 9), (fast, 3)):
            series.add([{"bytes": 8, "in_place": False, "p50_us": time_us, "p99_us": time_us}])
        found = settings.ranked({"slow": slow, "absent": absent, "fast": fast}, (8, False))
        self.assertEqual(found, [(3, "fast"), (9, "slow")])

    def test_a_setting_is_for_the_collective_alone(self):
        asked = argparse.Namespace(build="build", collective="all_gather", tried=None,
                                   line_most=32 << 10, memory="malloc")
        with unittest.mock.patch.object(settings, "algorithms_for", return_value=["ring"]):
            found = settings.candidates(asked, "tcp")
        self.assertEqual([one.name for one in found], ["plain", "ring/Simple"])
        self.assertEqual(found[1].settings,
                         {"GYRE_ALGO": "allgather:ring", "GYRE_PROTO": "allgather:Simple"})

    def test_a_program_that_fails_is_quoted(self):
        said = rounds.run_program(["sh", "-c", "echo reason; exit 3"], dict(os.environ), 60)
        self.assertIn("exit code 3", said)
        self.assertIn("reason", said)
        self.assertEqual(rounds.run_program(["true"], dict(os.environ), 60), "")

    def test_gyre_gets_the_memory_that_is_asked_for(self):
        def said(memory):
            program = perf_programs.Gyre("build", memory=memory)
            words, _ = program.command(2, "shm", ["-b", "8"], "rows.json")
            return " ".join(words)
        self.assertIn("--device host --plain_memory", said("malloc"))
        self.assertNotIn("plain_memory", said("registered"))

    def test_memory_is_malloc_s_by_default(self):
        parser = argparse.ArgumentParser()
        rounds.add_arguments(parser)
        self.assertEqual(parser.parse_args([]).memory, "malloc")

    def test_a_processor_whose_name_says_little_is_told_by_its_numbers(self):
        for name, shown in (("Intel(R) Xeon(R) Gold 6248", "Intel(R) Xeon(R) Gold 6248, "),
                            ("AMD EPYC", "AMD EPYC (family 26, model 2), ")):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write("processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\n"
                           f"model name\t: {name}\n\nprocessor\t: 1\nmodel\t\t: 3\n")
                file.flush()
                self.assertTrue(rounds.machine(file.name).startswith(shown))

    def test_steps_of_a_round_take_turns_and_become_medians(self):
        called = []
        def step(name, values):
            def act():
                called.append(name)
                return (next(values),)
            return act
        steps = [step("one", iter((1, 9, 2))), step("other", iter((5, 4, 6)))]
        self.assertEqual(one_way.in_turns(steps, 3), [(2,), (5,)])
        self.assertEqual(called, ["one", "other", "other", "one", "one", "other"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
