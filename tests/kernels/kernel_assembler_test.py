"""How kernels are built when the ptxas of CUDA 12 replaces that of an nvcc of CUDA 13: which ptxas
is taken, and its arguments. Fake programs record how they were called. kernel_assembler_test.py
ROOT [unittest arguments]."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.join(ROOT, "kernels", "cuda"))
import nvcc_build  # noqa: E402

TARGETS = ["-gencode", "arch=compute_80,code=sm_80", "-gencode",
           "arch=compute_90,code=[sm_90,sm_120,compute_90]"]
# Each writes its output, the one that -o or --create= names; of nvcc that is PTX.
TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> {folder}/told
for word in "$@"; do
  case "$last" in -o) out=$word ;; esac
  case "$word" in --create=*) out=${{word#--create=}} ;; *.ptx) ptx=$word ;; esac
  last=$word
done
if [ "$(basename "$0")" = nvcc ]; then printf '//\\n.version 9.0\\n.target sm_90\\n' > "$out"
else cp "$ptx" {folder}/seen; touch "$out"; fi
exit {code}
"""


class Assembler(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def program(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def found(self, where, root="/nowhere"):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = nvcc_build.assembler(where, root)
        return code, out.getvalue().split()

    def of_release(self, release, name="ptxas"):
        return self.program(name, f"#!/bin/sh\necho 'Cuda, release {release}, V{release}.1'\n")

    def test_only_one_of_cuda_12_that_knows_all_gpus_is_taken(self):
        for release, taken in (("12.9", True), ("12.8", True), ("12.4", False), ("13.0", False)):
            path = self.of_release(release)
            code, words = self.found(path)
            self.assertEqual(code, 0 if taken else 1, release)
            self.assertEqual(words, [os.path.realpath(path), release] if taken else [])

    def test_none_and_what_is_not_there_find_nothing(self):
        self.assertEqual(self.found("none"), (0, []))
        self.assertEqual(self.found("/nowhere/ptxas"), (1, []))

    def test_that_of_the_wheel_is_found_by_itself(self):
        name = ".venv-cuda/lib/python3.11/site-packages/nvidia/cuda_nvcc/bin/ptxas"
        path = self.of_release("12.9", name)
        self.assertEqual(self.found("auto", self.folder), (0, [os.path.realpath(path), "12.9"]))

    def test_nvccs_flags_are_told_apart(self):
        targets, others = nvcc_build.targets_in(["-O3", *TARGETS, "-I/x"])
        self.assertEqual(targets, [("80", ["sm_80"]), ("90", ["sm_90", "sm_120", "compute_90"])])
        self.assertEqual(others, ["-O3", "-I/x"])

    def assemble(self, ptxas_code=0):
        for name, code in (("nvcc", 0), ("ptxas", ptxas_code), ("fatbinary", 0)):
            self.program(name, TOOL.format(folder=self.folder, code=code))
        out = os.path.join(self.folder, "row.fatbin")
        done = nvcc_build.assemble(os.path.join(self.folder, "nvcc"),
                                   os.path.join(self.folder, "ptxas"),
                                   ["-O3", *TARGETS, "-fatbin", "row.cc", "-o", out], self.folder)
        return done.returncode, self.read("told").splitlines()

    def test_the_older_assembler_gets_ptx_of_its_version_for_each_gpu(self):
        code, told = self.assemble()
        self.assertEqual(code, 0)
        self.assertEqual([line.split()[0] for line in told],
                         ["nvcc", "ptxas", "nvcc", "ptxas", "ptxas", "fatbinary"])
        self.assertEqual([line.split()[1] for line in told if line.startswith("ptxas")],
                         ["-arch=sm_80", "-arch=sm_90", "-arch=sm_120"])
        self.assertIn(f".version {nvcc_build.PTX_VERSION}\n.target", self.read("seen"))
        for word in ("kind=elf,sm=80", "kind=elf,sm=90", "kind=elf,sm=120", "kind=ptx,sm=90",
                     f"--compress-mode={nvcc_build.COMPRESSION}"):
            self.assertIn(word, told[-1])
        self.assertNotIn("kind=ptx,sm=80", told[-1])

    def test_what_it_refuses_fails_the_build(self):
        code, told = self.assemble(ptxas_code=1)
        self.assertEqual(code, 1)
        self.assertFalse(any(line.startswith("fatbinary") for line in told))


if __name__ == "__main__":
    unittest.main()
