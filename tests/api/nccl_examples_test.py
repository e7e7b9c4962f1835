"""Programs written for NCCL, with host buffers instead of device ones, become Gyre programs by
renaming alone. They build as strict C99 against gyre.h and give the right results.
nccl_examples_test.py FOLDER_OF_GYRE_H FOLDER_OF_LIBGYRE"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

HEADERS, LIBRARY = "", ""
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl_examples")
STRICT_C = ["cc", "-std=c99", "-D_DEFAULT_SOURCE", "-pedantic", "-Wall", "-Wextra", "-Werror"]
# What docs/c-api.md tells a user to type; the second and third only where there are such names.
RENAMINGS = ["s/nccl/gyre/g", "s/NCCL/GYRE/g", "s/cudaStream/gyreStream/g"]


def needed(source):
    return [rule for rule in RENAMINGS if re.search(rule.split("/")[1], source)]


def ported(path):
    with open(path) as file:
        rules = needed(file.read())
    renamed = subprocess.run(["sed", *[part for rule in rules for part in ("-e", rule)], path],
                             capture_output=True, text=True, check=True)
    return renamed.stdout


class NcclExamples(unittest.TestCase):
    def build(self, path, folder):
        name = os.path.basename(path)
        source, program = os.path.join(folder, name), os.path.join(folder, name[:-2])
        with open(source, "w") as file:
            file.write(ported(path))
        done = subprocess.run([*STRICT_C, source, f"-I{HEADERS}", f"-L{LIBRARY}", "-lgyre",
                               "-pthread", "-o", program], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return program

    def test_every_example_builds_and_runs(self):
        paths = sorted(glob.glob(f"{EXAMPLES}/*.c"))
        self.assertGreaterEqual(len(paths), 10)
        environment = {**os.environ, "LD_LIBRARY_PATH": LIBRARY, "GYRE_TIMEOUT": "20"}
        with tempfile.TemporaryDirectory() as folder:
            for path in paths:
                with self.subTest(os.path.basename(path)):
                    program = self.build(path, folder)
                    for transport in ("shm", "tcp"):
                        done = subprocess.run(
                            [program], capture_output=True, text=True, timeout=60,
                            env={**environment, "GYRE_TRANSPORT": transport})
                        self.assertEqual((done.returncode, done.stdout), (0, "right\n"),
                                         f"{transport}: {done.stderr}")

    def test_most_examples_need_the_first_renaming_alone(self):
        counts = []
        for path in glob.glob(f"{EXAMPLES}/*.c"):
            with open(path) as file:
                counts.append(len(needed(re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S))))
        self.assertGreaterEqual(counts.count(1), len(counts) - 3)


if __name__ == "__main__":
    HEADERS, LIBRARY = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()
