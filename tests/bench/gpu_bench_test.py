"""bench/gpu.py where there is no GPU: which programs it would run, how it refuses, and the figures
that it computes from given measurements. gpu_bench_test.py FOLDER_OF_BENCH [unittest arguments]."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

BENCH = sys.argv.pop(1)
sys.path.insert(0, BENCH)
import gpu  # noqa: E402
import figures  # noqa: E402


def line(measure, size, *us):
    median = sorted(us)[len(us) // 2]
    return {"measure": measure, "bytes": size, "median_us": median, "us": list(us)}


class Figures(unittest.TestCase):
    def test_bytes_follow_the_plan(self):
        # Two ranks, direct, by hand: each reads two halves and writes two, of S / 2 each.
        self.assertEqual(figures.moved_bytes("ring", "direct", 2, 100), 400)
        self.assertEqual(figures.moved_bytes("twoshot", "direct", 2, 100), 400)
        self.assertEqual(figures.moved_bytes("ring", "simple", 2, 100), 800)
        self.assertEqual(figures.moved_bytes("ring", "direct", 4, 100), 1400)
        self.assertEqual(figures.moved_bytes("twoshot", "direct", 4, 100), 800)
        self.assertEqual(figures.moved_bytes("oneshot", "direct", 2, 100), 600)
        self.assertIsNone(figures.moved_bytes("tree", "simple", 4, 100))
        self.assertIsNone(figures.moved_bytes("ring", "direct", 1, 100))

    def test_ratios_are_of_the_same_round_and_the_largest_size(self):
        found = figures.by_measure([
            line("copy_move", 1 << 20, 1, 1, 1), line("copy_driver", 1 << 20, 9, 9, 9),
            line("copy_move", 1 << 30, 100, 200, 100), line("copy_driver", 1 << 30, 95, 190, 95),
            line("ring_interpreted", 8, 30, 30), line("ring_straight", 8, 20, 20),
            line("ring_interpreted", 1 << 16, 51, 51), line("ring_straight", 1 << 16, 50, 50),
            line("ring_interpreted", 1 << 20, 90, 90), line("ring_straight", 1 << 20, 90, 90)])
        ratios = figures.move_ratios(found)
        self.assertAlmostEqual(ratios["copy"], 0.95)
        self.assertAlmostEqual(ratios["interpreter"], 1.02)
        self.assertAlmostEqual(ratios["interpreter_8B"], 1.5)
        self.assertNotIn("reduce", ratios)

    def test_the_floor_is_the_memorys_best(self):
        found = figures.by_measure([line("copy_driver", 1000, 2.0, 1.0), line("triad", 1000, 1.0)])
        bandwidth = figures.memory_bandwidth(found)
        self.assertAlmostEqual(bandwidth, 3e9)
        self.assertAlmostEqual(
            figures.floor_fraction(2, 3000, 8.0, ("ring", "direct"), bandwidth), 0.5)
        self.assertIsNone(figures.floor_fraction(2, 3000, 8.0, None, bandwidth))

    def test_a_missed_limit_and_an_open_one_show(self):
        common = {"machine": "m", "commit": "c", "time": "t", "command": "x"}
        text = figures.page(common, {"copy": 0.5}, {("threads", 2): {8: 1.25}}, ["a note"], [])
        self.assertIn("| 0.500 | >= 0.92 | MISSED |", text)
        self.assertIn("not measured", text)
        self.assertIn("| 8 | 1.25 |", text)
        self.assertFalse(figures.verdict("graph_8B", 2.6))
        self.assertTrue(figures.verdict("interpreter", 1.01))

    def test_the_picture_shows_each_ratio_beside_its_limit(self):
        picture = figures.ratio_picture({"copy": 0.46, "graph_8B": 5.0})
        document = xml.dom.minidom.parseString(picture)
        bars = [float(bar.getAttribute("width")) for bar in
                document.getElementsByTagName("rect")]
        line = document.getElementsByTagName("line")[0]
        limit = float(line.getAttribute("x1")) - float(
            document.getElementsByTagName("rect")[0].getAttribute("x"))
        self.assertAlmostEqual(bars[0], limit / 2)
        self.assertAlmostEqual(bars[1], 2 * limit)
        self.assertEqual(picture.count("not measured"), len(figures.GATES) - 2)

    def test_the_choice_is_the_largest_calls(self):
        log = ("all ranks choose oneshot with line for all_reduce of 8 bytes and the like\n"
               "all ranks choose ring with direct for all_reduce of 1073741824 bytes")
        self.assertEqual(gpu.choice_in(log), ("ring", "direct"))
        self.assertIsNone(gpu.choice_in("nothing"))


class Command(unittest.TestCase):
    def run_gpu(self, *words):
        return subprocess.run([sys.executable, os.path.join(BENCH, "gpu.py"), *words],
                              capture_output=True, text=True, timeout=60)

    def test_a_dry_run_names_every_program_and_runs_none(self):
        done = self.run_gpu("--dry-run", "--build", "/nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("gpu_moves", "-t 8 ", "run -n 4 ", "with_mps.py", "-G 4000", "-b 1G -e 1G",
                      "nccl_all_reduce"):
            self.assertIn(words, done.stdout)

    def test_a_piece_is_run_alone(self):
        words = {"moves": "gpu_moves", "threads": "-t 8 ", "processes": "gyre run -n 4 ",
                 "mps": "with_mps.py", "limits": "-b 1G -e 1G", "nccl": "nccl_all_reduce"}
        self.assertEqual(set(words), set(gpu.PIECES))
        for piece in gpu.PIECES:
            done = self.run_gpu("--dry-run", "--build", "/nowhere", "--only", piece)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(words[piece], done.stdout)
            for other in set(gpu.PIECES) - {piece}:
                if (piece, other) not in (("mps", "processes"),):
                    self.assertNotIn(words[other], done.stdout, f"{other} in {piece}")

    def test_pieces_find_what_others_have_recorded_at_this_commit(self):
        class Options:
            pass
        options = Options()
        with tempfile.TemporaryDirectory() as options.results:
            self.assertEqual(gpu.recorded(options), ([], {}))
            own, other = gpu.rounds.commit(), "another"
            rows = [{"commit": own, **line("copy_driver", 8, 1.0)},
                    {"commit": other, **line("triad", 8, 1.0)},
                    {"commit": own, "ranks_are": "threads", "ranks": 2, "bytes": 8, "us": 3.0},
                    {"commit": own, "ratios": {}}]
            with open(os.path.join(options.results, "gpu.jsonl"), "w", encoding="utf-8") as file:
                file.write("\n".join(json.dumps(row) for row in rows) + "\n")
            lines, table = gpu.recorded(options)
        self.assertEqual([one["measure"] for one in lines], ["copy_driver"])
        self.assertEqual(table, {("threads", 2): {8: 3.0}})

    def test_without_a_gpu_it_says_so(self):
        if not gpu.why_no_gpu():
            self.skipTest("there is a GPU")
        done = self.run_gpu("--build", "/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no GPU to measure", done.stderr)

    def test_a_program_that_hangs_is_ended_with_its_children(self):
        with tempfile.TemporaryFile("w+") as output:
            problem = gpu.run_whole(["sh", "-c", "sleep 60 & wait"], os.environ, 0.3, output)
        self.assertEqual(problem, "not done after 0.3 s")
        with tempfile.TemporaryFile("w+") as output:
            self.assertEqual(gpu.run_whole(["false"], os.environ, 5, output), "exit code 1")
            self.assertEqual(gpu.run_whole(["true"], os.environ, 5, output), "")


if __name__ == "__main__":
    unittest.main()
