"""What becomes of recorded comparisons: the picture (bench/compare/compare_chart.py) and the tables
of docs/results.md (compare_page.py), which are up to date. recorded_test.py FOLDER_OF_COMPARE
[unittest arguments]."""
import json
import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, sys.argv.pop(1))
import compare_chart  # noqa: E402
import compare_page  # noqa: E402
import recorded  # noqa: E402


def line(collective="all_reduce", size=8, **values):
    return {"time": "2026-01-02T03:04:05", "commit": "abc", "machine": "a machine",
            "collective": collective, "type": "float", "in_place": False, "bytes": size,
            "ranks": 2, "transport": "shm", "memory": "malloc", "cold": False, "written": False,
            "rounds": 15, "kept": 14, "disturbed": False,
            "us": {"gyre": 2.0, "mpich": 3.0, "openmpi": 4.0}, "ratio": 1.5, "best": "mpich",
            "interval": [1.4, 1.6], "limits_us": {"line": 0.1, "cache": 1.0, "stream": 2.0},
            "versions": {"gyre": "Gyre 0.1.0", "mpich": "MPICH Version: 4.0.2"}, **values}


class Recorded(unittest.TestCase):
    def test_the_newest_line_of_a_row_counts_and_runs_complete_each_other(self):
        lines = [line(size=64, ratio=1), line(size=8, ratio=2), line("barrier", 4),
                 line(size=64, ratio=3), line(size=8, ratio=9, ranks=4)]
        (kind, tables), = recorded.newest(lines, ranks=2).items()
        self.assertEqual((kind.ranks, kind.memory), (2, "malloc"))
        self.assertEqual(list(tables), ["all_reduce", "barrier"])
        self.assertEqual([(each["bytes"], each["ratio"]) for each in tables["all_reduce"]],
                         [(8, 2), (64, 3)])
        self.assertEqual(len(recorded.newest(lines)), 2)

    def test_a_collective_that_has_one_place_only_counts_by_that_one(self):
        lines = [line(), line(in_place=True, ratio=7), line("broadcast", in_place=True, ratio=5)]
        (tables,) = recorded.newest(lines).values()
        self.assertEqual((tables["all_reduce"][0]["ratio"], tables["broadcast"][0]["ratio"]),
                         (1.5, 5))

    def test_what_was_not_recorded_is_said_with_the_command(self):
        with self.assertRaisesRegex(recorded.NothingRecorded, "ranks 8.*compare --record"):
            recorded.newest([line()], ranks=8)

    def test_disturbed_rows_and_rows_without_a_peer_are_in_no_mean(self):
        lines = [line(ratio=2), line(size=64, ratio=8), line(size=512, ratio=0.001, disturbed=True),
                 line(size=4096, ratio=None, interval=None)]
        self.assertAlmostEqual(recorded.mean_of(lines), 4)
        self.assertIsNone(recorded.mean_of(lines[2:]))

    def test_the_picture_has_all_sizes_also_those_that_are_slower(self):
        tables = {"all_reduce": [line(), line(size=1 << 20, us={"gyre": 9.0, "mpich": 3.0})],
                  "barrier": [line("barrier", 4)]}
        kind = recorded.kind_of(line())
        drawn = xml.etree.ElementTree.fromstring(compare_chart.draw(kind, tables))
        dots = [each for each in drawn.iter() if each.tag.endswith("circle")]
        self.assertEqual(len(dots), 2 + 5)  # the legend's, and each peer's at each size
        panel = compare_chart.Panel(0, 0, 100, tables["all_reduce"])
        self.assertLess(panel.down(1.5), panel.down(1))
        self.assertLess(panel.down(1), panel.down(1 / 3))

    def test_the_page_names_the_worst_row_the_commit_and_the_rounds_that_count(self):
        lines = [line(), line(size=64, ratio=0.5, interval=[0.4, 0.6]), line("barrier", 4)]
        text = compare_page.page(lines)
        self.assertIn("| all-reduce | 2.00 (1.50) | 2.00 (0.50) | 0.87 | "
                      "0.50 (0.40 to 0.60) at 64 B, mpich |", text)
        self.assertIn("commit abc", text)
        self.assertIn("42 of 45 rounds count", text)

    def test_a_table_shows_a_few_sizes_the_first_and_the_last_among_them(self):
        sizes = [8 << shift for shift in range(20)]
        shown = compare_page.shown_sizes({"all_reduce": [line(size=size) for size in sizes]})
        self.assertEqual((len(shown), shown[0], shown[-1]),
                         (compare_page.COLUMNS, sizes[0], sizes[-1]))

    def test_only_the_section_is_written_and_a_check_tells_an_old_one(self):
        with tempfile.TemporaryDirectory() as folder:
            page, results = os.path.join(folder, "page.md"), os.path.join(folder, "rows.jsonl")
            given = ["--page", page, "--results", results]
            with open(page, "w", encoding="utf-8") as file:
                file.write(f"above\n{compare_page.BEGIN}old\n{compare_page.END}below\n")
            with open(results, "w", encoding="utf-8") as file:
                file.write(json.dumps(line()) + "\n")
            self.assertEqual(compare_page.main(["--check", *given]), 1)
            self.assertEqual(compare_page.main(given), 0)
            self.assertEqual(compare_page.main(["--check", *given]), 0)
            with open(page, encoding="utf-8") as file:
                text = file.read()
        self.assertTrue(text.startswith("above\n") and text.endswith("below\n"), text)
        self.assertIn("| all-reduce | 2.00 (1.50) |", text)
        self.assertNotIn("old", text)

    def test_the_page_is_up_to_date(self):
        self.assertEqual(compare_page.main(["--check"]), 0,
                         "docs/results.md: bench/compare/compare_page.py writes it")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
