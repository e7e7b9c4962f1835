"""bench/compare/slow_rounds.py and the plans of interleaved.py: which rounds of a comparison count,
and what becomes of them. slow_rounds_test.py FOLDER_OF_COMPARE [unittest arguments]."""
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
import compare  # noqa: E402
import compare_table  # noqa: E402
import interleaved  # noqa: E402
import slow_rounds  # noqa: E402

USUAL = (0.1, 20.0)


def figures(us, references=None):
    made = interleaved.Figures()
    made.us = us
    made.p99_us = [{name: 2 * value for name, value in each.items()} for each in us]
    made.references = references or [(USUAL, USUAL)] * len(us)
    return made


class SlowRounds(unittest.TestCase):
    def test_a_round_is_left_out_if_either_reference_was_slow_before_or_after_it(self):
        limit = slow_rounds.SLOW
        for slow in ((0.1 * limit * 1.01, 20), (0.1, 20 * limit * 1.01)):
            references = [(USUAL, USUAL), (slow, USUAL), (USUAL, slow), (USUAL, USUAL)]
            self.assertEqual(slow_rounds.kept_rounds(references, USUAL), [0, 3])
        within = (0.1 * limit * 0.99, 20 * limit * 0.99)
        self.assertEqual(slow_rounds.kept_rounds([(within, within)], USUAL), [0])

    def test_slow_minutes_do_not_move_what_is_usual(self):
        pairs = [(0.4, 80.0)] * 6 + [USUAL] * 4
        self.assertEqual(slow_rounds.usual_references(pairs), USUAL)
        # Each of the two has its own.
        self.assertEqual(slow_rounds.usual_references([(1, 9), (9, 1), (5, 5)]), (1, 1))

    def test_a_slow_round_changes_no_figure(self):
        quiet = [{"gyre": 1, "mpi": 2}] * 4
        slow = {"gyre": 9, "mpi": 3}
        references = [(USUAL, USUAL)] * 4 + [(USUAL, (0.4, 80.0))] * 3
        summary = slow_rounds.Summary(figures(quiet + [slow] * 3, references), USUAL)
        self.assertEqual((summary.kept, summary.measured), (4, 7))
        self.assertEqual((summary.us, summary.ratio), ({"gyre": 1, "mpi": 2}, 2))
        self.assertFalse(summary.disturbed)

    def test_a_row_with_more_slow_rounds_than_others_is_disturbed(self):
        references = [(USUAL, USUAL)] * 2 + [((0.4, 80.0), USUAL)] * 3
        summary = slow_rounds.Summary(figures([{"gyre": 1, "mpi": 2}] * 5, references), USUAL)
        self.assertTrue(summary.disturbed)
        row = interleaved.Row("all_reduce", "float", False, 8)
        self.assertIsNone(compare_table.overall([row], {row: summary}))

    def test_a_ratio_is_that_to_the_peer_with_the_least_median(self):
        rounds = [{"gyre": 2, "slow": 8, "fast": 3}, {"gyre": 2, "slow": 1, "fast": 3},
                  {"gyre": 2, "slow": 8, "fast": 3}]
        self.assertEqual(slow_rounds.best_ratio(rounds), (1.5, "fast"))

    def test_the_interval_holds_the_ratio_narrows_and_takes_rounds_whole(self):
        def interval(count):
            return slow_rounds.ratio_interval([{"gyre": 10 + i % 3, "mpi": 20 + i % 5}
                                               for i in range(count)])
        (low, high), (least, most) = interval(9), interval(300)
        self.assertTrue(low <= 22 / 11 <= high and least <= 22 / 11 <= most)
        self.assertGreater(high - low, most - least)
        # Both take turns at being slow, together: each round says 2.
        self.assertEqual(slow_rounds.ratio_interval([{"gyre": 1, "mpi": 2}, {"gyre": 5, "mpi": 10},
                                                     {"gyre": 3, "mpi": 6}]), (2, 2))

    def test_the_interval_knows_that_the_best_peer_may_be_another_one(self):
        rounds = [{"gyre": 1, "a": 1 + i % 2, "b": 2 - i % 2} for i in range(9)]
        low, high = slow_rounds.ratio_interval(rounds)
        self.assertEqual(low, 1)
        self.assertLessEqual(high, 2)

    def test_the_mean_is_geometric_and_the_worst_row_is_named(self):
        self.assertAlmostEqual(slow_rounds.geometric_mean([0.5, 8]), 2)
        rows = [interleaved.Row("all_reduce", "float", False, size) for size in (8, 64)]
        summaries = {row: slow_rounds.Summary(figures([{"gyre": 2, "mpi": theirs}] * 3), USUAL)
                     for row, theirs in zip(rows, (1, 16))}
        mean, worst, where = compare_table.overall(rows, summaries)
        self.assertAlmostEqual(mean, 2)
        self.assertEqual((worst, where.bytes), (0.5, 8))

    def test_the_tail_is_compared_with_that_of_the_peer_that_is_best_by_its_median(self):
        made = figures([{"gyre": 2, "fast": 3, "slow": 4}] * 3)
        made.p99_us = [{"gyre": 10, "fast": 30, "slow": 5}] * 3
        row = interleaved.Row("all_reduce", "float", False, 8)
        summary = slow_rounds.Summary(made, USUAL)
        mean, worst, where = compare_table.tails([row], {row: summary})
        self.assertAlmostEqual(mean, 3)
        self.assertEqual((worst, where), (3, row))

    def test_a_contender_that_failed_on_the_way_has_no_figure(self):
        summary = slow_rounds.Summary(figures([{"gyre": 1, "mpi": 2, "gone": 1},
                                               {"gyre": 1, "mpi": 2}]), USUAL)
        self.assertEqual((set(summary.us), summary.best), ({"gyre", "mpi"}, "mpi"))

    def test_gyre_alone_has_times_and_no_ratio(self):
        summary = slow_rounds.Summary(figures([{"gyre": 1}] * 3), USUAL)
        self.assertEqual((summary.us, summary.ratio), ({"gyre": 1}, None))


class Plans(unittest.TestCase):
    def test_blocks_are_long_beside_a_barrier_and_fill_the_budget(self):
        for call_us in (0.1, 3, 50, 4000):
            _, blocks, calls = interleaved.plan(call_us, 20000, interleaved.BLOCK_US)
            self.assertTrue(calls * call_us >= interleaved.BLOCK_US * 0.99, call_us)
            self.assertTrue(blocks * calls * call_us <= 20001 or
                            blocks == interleaved.MIN_BLOCKS, call_us)
            self.assertGreaterEqual(blocks, interleaved.MIN_BLOCKS)
        self.assertEqual(interleaved.plan(0.5, 20000, 0)[2], 1)

    def test_slow_barriers_cost_blocks_and_not_time(self):
        _, blocks, calls = interleaved.plan(50, 20000, interleaved.BLOCK_US, barrier_us=4000)
        self.assertLessEqual(blocks * (calls * 50 + 4000), 20000)
        self.assertEqual(interleaved.tail_plan(0.5, 20000, 1), (1, interleaved.MAX_TAIL, 1))
        self.assertEqual(interleaved.tail_plan(50, 20000, 4000), (1, interleaved.MIN_TAIL, 1))

    def test_the_99th_of_a_hundred(self):
        self.assertEqual(interleaved.percentile_99(range(1, 101)), 99)
        self.assertEqual(interleaved.percentile_99([7]), 7)

    def test_rows_are_those_that_all_ranks_can_share(self):
        options = compare.arguments(["all_gather", "broadcast", "barrier", "--ranks", "8",
                                     "--sizes", "8", "4K", "--places", "out", "in"])
        found = [(row.collective, row.in_place, row.bytes) for row in compare.rows_of(options)]
        self.assertEqual(found, [("all_gather", False, 4096), ("all_gather", True, 4096),
                                 ("broadcast", True, 8), ("broadcast", True, 4096),
                                 ("barrier", False, 4)])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
