"""Every perf program, run as users run it: all types, operations and roots, as processes and as
threads; sizes, counts and factors as nccl-tests defines them; wrong results are found.
bench_programs_test.py GYRE FOLDER FAULTY_PERF [unittest arguments]; the programs lie in FOLDER."""
import collections
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

GYRE = FOLDER = FAULTY = ""
PATIENCE_S = 100
SIZES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2,
         "float": 4, "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1}
OPERATIONS = "sum prod max min avg mulsum".split()
BITWISE = "band bor bxor".split()
HEADING = ("size count type redop root time algbw busbw wrong in_time in_algbw in_busbw "
           "in_wrong").split()

# divided: a size is cut into equal shares of whole 16 bytes (nccl-tests, *GetCollByteCount).
# bus: bus bandwidth over algorithm bandwidth for n ranks; counted: what of the size the algorithm
# bandwidth counts (nccl-tests, doc/PERFORMANCE.md and *GetBw).
Program = collections.namedtuple("Program", "divided reduces rooted in_place bus counted")


def whole(_):
    return 1


def without_own(n):
    return (n - 1) / n


PROGRAMS = {
    "all_reduce": Program(False, True, False, True, lambda n: 2 * (n - 1) / n, whole),
    "all_gather": Program(True, False, False, True, without_own, whole),
    "reduce_scatter": Program(True, True, False, True, without_own, whole),
    "broadcast": Program(False, False, True, True, whole, whole),
    "reduce": Program(False, True, True, True, whole, whole),
    "alltoall": Program(True, False, False, False, without_own, whole),
    "alltoallv": Program(True, False, False, False, without_own, whole),
    "gather": Program(True, False, True, True, without_own, whole),
    "scatter": Program(True, False, True, True, without_own, whole),
    "sendrecv": Program(False, False, False, False, whole, whole),
    "hypercube": Program(True, False, False, True, whole, without_own),
}


def run(command, *arguments, processes=1, **environment):
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("GYRE_", "NCCL_"))}
    launcher = [GYRE, "run", "-n", str(processes)] if processes > 1 else []
    done = subprocess.run([*launcher, *command, *arguments], capture_output=True, text=True,
                          timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
                          env={**clean, "GYRE_SOCKET_IFNAME": "lo", **environment})
    # gyre run puts the rank before each line.
    lines = [line.split("] ", 1)[1] if launcher and line.startswith("[") else line
             for line in done.stdout.splitlines()]
    return done.returncode, lines, done.stderr


def perf(name, arguments, **how):
    return run([os.path.join(FOLDER, name + "_perf")], *arguments.split(), **how)


def rows(lines):
    return [dict(zip(HEADING, line.split())) for line in lines
            if line.strip() and not line.startswith("#")]


def possible(name, ranks):
    return name != "hypercube" or ranks & (ranks - 1) == 0


def shares(name, asked, ranks, type_bytes):
    """The size and the count that the table must show."""
    if not PROGRAMS[name].divided:
        return asked // type_bytes * type_bytes, asked // type_bytes
    count = asked // type_bytes // ranks // (16 // type_bytes) * (16 // type_bytes)
    size = count * ranks * type_bytes
    if name == "alltoallv" and ranks > 1:  # by distance, each block whole 16 bytes
        distances = ranks * (ranks - 1) / 2
        size = sum(int(d * size / distances) // 16 * 16 for d in range(ranks))
    return size, count


class Programs(unittest.TestCase):
    def right(self, name, arguments, **how):
        code, lines, said = perf(name, arguments, **how)
        self.assertEqual(code, 0, "\n".join(lines) + said)
        self.assertIn("# Out of bounds values : 0 OK", lines)
        found = rows(lines)
        for row in found:
            self.assertEqual(len(row), len(HEADING))
            in_place = PROGRAMS[name].in_place
            self.assertEqual((row["wrong"], row["in_wrong"]), ("0", "0" if in_place else "N/A"))
        return found

    def check_rows(self, name, ranks, kinds, roots, how, **processes):
        program = PROGRAMS[name]
        found = self.right(name, "-b 24 -e 38400 -f 1600 -n 1 -o all" + how, **processes)
        wanted = []
        for kind in kinds:
            integer = kind.lstrip("u").startswith("int")
            operations = OPERATIONS + (BITWISE if integer else [])
            for operation in operations if program.reduces else ["none"]:
                for root in roots if program.rooted else [-1]:
                    wanted += [(*shares(name, asked, ranks, SIZES[kind]), kind, operation, root)
                               for asked in (24, 38400)]
        self.assertEqual([(int(row["size"]), int(row["count"]), row["type"], row["redop"],
                           int(row["root"])) for row in found], wanted)

    def check_everything(self, ranks, how, **processes):
        """All types and operations, and all roots: not their product, which is long for a reduce
        where ranks share cores."""
        for name, program in PROGRAMS.items():
            if not possible(name, ranks):
                continue
            with self.subTest(name=name, ranks=ranks):
                self.check_rows(name, ranks, SIZES, [0], how + " -d all", **processes)
                if program.rooted:
                    self.check_rows(name, ranks, ["float"], range(ranks), how + " -r all",
                                    **processes)

    def test_all_types_operations_and_roots_on_two_processes(self):
        self.check_everything(2, "", processes=2)

    def test_all_types_operations_and_roots_on_three_processes(self):
        self.check_everything(3, "", processes=3)

    def test_all_types_operations_and_roots_on_five_threads(self):
        self.check_everything(5, " -t 5")

    def test_groups_aggregation_streams_and_odd_addresses(self):
        for name in PROGRAMS:
            for how in ("-g 4", "-g 2 -t 2 -m 3", "-t 4 -m 2", "-t 4 -y 0", "-g 4 -y 0 -m 2",
                        "-t 4 -z 1", "-t 4 -u 1 -d int8"):
                with self.subTest(name=name, how=how):
                    self.assertEqual(len(self.right(name, "-b 1K -e 64K -f 64 -n 3 " + how)), 2)

    def test_an_empty_size_is_a_call_without_data(self):
        for name, how in itertools.product(PROGRAMS, ("", " -R 1")):
            with self.subTest(name=name, how=how):
                found = self.right(name, "-b 0 -e 0 -n 2 -t 4" + how)
                self.assertEqual([(row["size"], row["count"]) for row in found], [("0", "0")])

    def test_bandwidths_are_those_of_nccl_tests(self):
        ranks = 4
        for name, program in PROGRAMS.items():
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "a.json")
                self.right(name, f"-b 64K -e 64K -n 2 -t {ranks} -J {path}")
                with open(path) as file:
                    result = json.load(file)["results"][0]
                half = result["out_of_place"]
                algorithm = result["size"] * program.counted(ranks) / half["time"] / 1e3
                self.assertAlmostEqual(half["alg_bw"] / algorithm, 1, 6)
                self.assertAlmostEqual(half["bus_bw"] / half["alg_bw"], program.bus(ranks), 6)
                self.assertEqual(result["in_place"]["time"] is None, not program.in_place)

    def test_a_hypercube_of_three_says_that_it_is_none(self):
        code, lines, said = perf("hypercube", "-b 64 -e 64", processes=3)
        self.assertEqual((code, rows(lines)), (0, []), said)
        self.assertEqual(lines.count("# nRanks 3 is not a power of 2, skipping"), 1)

    def test_a_hypercube_has_corners_of_four_and_eight_ranks(self):
        for how in ("-t 8", "-g 8", "-t 2 -g 2"):
            self.assertEqual(len(self.right("hypercube", "-b 4K -e 4K -n 2 -d all " + how)), 12)

    def test_a_root_that_does_not_exist_is_exit_code_2(self):
        code, lines, said = perf("broadcast", "-b 8 -e 8 -r 2", processes=2)
        self.assertEqual((code, rows(lines)), (2, []))
        self.assertEqual(said.count("-r 2: the ranks are 0 to 1"), 1)
        self.right("broadcast", "-b 8 -e 8 -r 1", processes=2)
        self.right("all_reduce", "-b 8 -e 8 -r 9 -t 2")  # it has no root


class UnevenTraffic(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "matrix.txt")

    def matrix(self, text, arguments, **environment):
        with open(self.path, "w") as file:
            file.write(text)
        return perf("alltoallv", arguments, processes=3,
                    GYRE_TESTS_ALLTOALLV_MATRIX_FILE=self.path, **environment)

    def test_a_matrix_gives_the_counts_zeros_included(self):
        # Rank 1 sends nothing; rank 0 receives nothing; rank 2 sends most to itself.
        text = "0 1000 64\n0 0 0\n0 16 4800\n"
        code, lines, said = self.matrix(text, "-b 16K -e 16K -d all -n 2",
                                        GYRE_TESTS_ALLTOALLV_PRINT_SUMMARY="1")
        self.assertEqual(code, 0, said)
        self.assertIn("# Out of bounds values : 0 OK", lines)
        self.assertEqual([(row["size"], row["count"]) for row in rows(lines)],
                         [("4864", "0")] * len(SIZES))
        summary = [line.split()[1:4] for line in lines if line.startswith("#   rank=")]
        self.assertEqual(summary[:3], [["rank=0", "send_bytes=1056", "recv_bytes=0"],
                                       ["rank=1", "send_bytes=0", "recv_bytes=1008"],
                                       ["rank=2", "send_bytes=4816", "recv_bytes=4864"]])
        code, lines, said = self.matrix(text, "-b 16K -e 16K -n 2",
                                        NCCL_TESTS_ALLTOALLV_MATRIX_SCALE="2")
        self.assertEqual((code, rows(lines)[0]["size"]), (0, "9728"), said)

    def test_nothing_at_all_is_a_matrix_too(self):
        code, lines, said = self.matrix("0 0 0\n0 0 0\n0 0 0\n", "-b 64 -e 64 -n 2")
        self.assertEqual((code, rows(lines)[0]["size"]), (0, "0"), said)

    def test_a_matrix_that_does_not_fit_is_exit_code_2_and_one_line(self):
        square = "16 16 16\n" * 3
        for text, arguments, reason in ((square, "-b 32 -e 32", "48 bytes at least"),
                                        (square, "-b 32 -e 64", "same size"),
                                        ("16 16\n16 16\n", "-b 64 -e 64", "3 ranks"),
                                        ("16 x\n16 16\n", "-b 64 -e 64", "row 0, column 1")):
            code, lines, said = self.matrix(text, arguments)
            self.assertEqual((code, rows(lines)), (2, []), said)
            self.assertEqual(said.count(reason), 1, said)
        code, _, said = perf("alltoallv", "-b 64 -e 64", processes=2,
                             GYRE_TESTS_ALLTOALLV_SPREAD="much")
        self.assertEqual((code, said.count("ALLTOALLV_SPREAD")), (2, 1), said)

    def test_help_names_the_variables(self):
        text = "\n".join(perf("alltoallv", "--help")[1])
        for name in ("MATRIX_FILE", "MATRIX_SCALE", "SPREAD", "PRINT_SUMMARY"):
            self.assertIn("ALLTOALLV_" + name, text)
        self.assertNotIn("ALLTOALLV_", "\n".join(perf("alltoall", "--help")[1]))


class WrongResults(unittest.TestCase):
    """faulty_perf spoils what the library did right."""

    def test_every_kind_of_wrong_result_is_exit_code_1_and_told(self):
        for fault, told, placements in (("wrong_element", "element 255 is", 2),
                                        ("other_bits", "differ in some bits", 2),
                                        ("beyond_output", "beside the output were written", 2),
                                        ("changed_input", "of the input were written", 1),
                                        ("no_output", "no output were written", 2)):
            with self.subTest(fault=fault):
                code, lines, said = run([FAULTY, fault], *"-b 1K -e 1K -n 1 -t 3".split())
                self.assertEqual(code, 1, said)
                self.assertIn(f"# Out of bounds values : {placements} FAILED", lines)
                self.assertIn(told, said)

    def test_a_wrong_result_on_another_process_is_exit_code_1_too(self):
        code, lines, said = run([FAULTY, "wrong_element"], *"-b 1K -e 1K -n 1".split(),
                                processes=2)
        self.assertEqual(code, 1, said)
        self.assertEqual((rows(lines)[0]["wrong"], rows(lines)[0]["in_wrong"]), ("1", "1"))

    def test_without_a_fault_or_without_checks_nothing_is_found(self):
        for arguments in (["none", *"-b 1K -e 1K -n 1 -t 3".split()],
                          ["wrong_element", *"-b 1K -e 1K -n 1 -t 3 -c 0".split()]):
            code, lines, said = run([FAULTY], *arguments)
            self.assertEqual(code, 0, said)
            self.assertIn("# Out of bounds values : 0 OK", lines)


if __name__ == "__main__":
    GYRE, FOLDER, FAULTY = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
