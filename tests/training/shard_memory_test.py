"""Sharded models need as much memory per rank as gradsync.h says, as the operating system counts
it: the formula of stage, factor and type, the units that are temporarily whole, and the links'
slots. shard_memory_test.py GYRE PROGRAM"""
import json
import os
import subprocess
import sys
import unittest

GYRE, PROGRAM = "", ""
PARAMETERS, UNITS = 8 << 20, 64
TOLERANCE = 0.05
# What the ranks' four communicators, their stacks and tables take, beyond all shares.
LINKS_BYTES = 600 << 10


def measure(ranks, stage, kind, *options, threads=False):
    command = [PROGRAM, "--stage", str(stage), "--type", kind, "--parameters", str(PARAMETERS),
               "--units", str(UNITS), "--steps", "3", *options]
    command = [*command, "-t", str(ranks)] if threads else \
        [GYRE, "run", "-n", str(ranks), "--timeout", "60", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100,
                          env={**os.environ, "GYRE_SOCKET_IFNAME": "lo"})
    if done.returncode != 0:
        raise AssertionError(f"{command}\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout[done.stdout.index("{"):])


class Memory(unittest.TestCase):
    def check(self, line, formula):
        self.assertAlmostEqual(line["formula"], formula, msg=line)
        element = 4 if line["type"] == "float" else 2
        units = {1: 0, 2: 2, 3: 2 + 3}[line["stage"]]  # of gradients two, of parameters three
        self.assertAlmostEqual(line["whole_units"], units * element / UNITS, msg=line)
        most = formula + line["whole_units"] + LINKS_BYTES / PARAMETERS
        self.assertLess(line["bytes_per_parameter"], most + TOLERANCE * formula, line)
        self.assertGreater(line["bytes_per_parameter"], formula * (1 - TOLERANCE), line)

    def test_float32_takes_8_and_8_4_and_12_0_and_16_by_n(self):
        for n in (2, 4):
            for stage, whole in ((1, 8), (2, 4), (3, 0)):
                self.check(measure(n, stage, "float"), whole + (16 - whole) / n)

    def test_16_bit_parameters_take_4_and_12_2_and_14_0_and_16_by_n(self):
        for stage, whole in ((1, 4), (2, 2), (3, 0)):
            self.check(measure(2, stage, "bfloat16"), whole + (16 - whole) / 2)

    def test_ranks_that_are_threads_take_as_much(self):
        self.check(measure(8, 3, "float", threads=True), 2)

    def test_a_factor_shares_among_so_many_ranks(self):
        line = measure(4, 3, "float", "--factor", "2")
        self.check(line, 8)
        # Half of a model's bytes for each of two gathers and a reduction, and one whole share
        # between two groups.
        model = 4 * PARAMETERS
        self.assertEqual(line["moved_bytes"], 3 * model // 2 + model // 2)


if __name__ == "__main__":
    GYRE, PROGRAM = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
