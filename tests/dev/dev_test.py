"""tools/dev with programs in Meson's and Ninja's place that only note how they are called: which
command builds the images of the CUDA kernels. dev_test.py ROOT [unittest arguments]."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1))

# All that tools/dev calls on its way. No dpkg-query: this is not Debian, nothing is installed.
PROGRAMS = ("bash", "env", "readlink", "dirname", "cat", "sed", "sort", "uniq", "awk", "paste",
            "id", "grep", "nproc", "touch", "rm", "mkdir", "chmod", "true")
NOTED = '#!/bin/sh\necho "${0##*/} $*" >>calls\n'
STANDINS = {
    "meson": NOTED + 'mkdir -p build/tools\ntouch build/build.ninja\n'
                     'printf "#!/bin/sh\\n" >build/tools/gyre\nchmod +x build/tools/gyre\n',
    "ninja": NOTED,
    "nvcc": "#!/bin/sh\necho 'release 12.0, V12.0'\n",
    "python3": "#!/bin/sh\nexit 1\n",
}


@unittest.skipIf(glob.glob("/proc/driver/nvidia/gpus/*"), "there is a GPU: images are always built")
class Images(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = os.path.join(self.folder, "bin")
        os.makedirs(self.bin)
        os.makedirs(os.path.join(self.folder, "tools"))
        for path in glob.glob(os.path.join(ROOT, "tools", "dev*")):
            if os.path.isfile(path):
                shutil.copy2(path, os.path.join(self.folder, "tools"))
        for name in PROGRAMS:
            os.symlink(shutil.which(name), os.path.join(self.bin, name))
        for name, text in STANDINS.items():
            with open(os.path.join(self.bin, name), "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(os.path.join(self.bin, name), 0o755)

    def dev(self, *arguments):
        """(how Meson was called to configure, all that was printed)."""
        calls = os.path.join(self.folder, "calls")
        if os.path.exists(calls):
            os.remove(calls)
        done = subprocess.run([os.path.join(self.folder, "tools", "dev"), *arguments],
                              env={"PATH": self.bin, "HOME": self.folder}, capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(calls, encoding="utf-8") as file:
            return [line for line in file.read().splitlines() if line.startswith("meson setup")], \
                done.stdout

    def test_bench_leaves_them_out_test_adds_one_architecture_and_build_all(self):
        setups, said = self.dev("bench")
        self.assertEqual(setups, ["meson setup build -Dcuda=disabled"])
        self.assertIn("those for CUDA take minutes", said.splitlines()[-1])
        self.assertEqual(self.dev("bench")[0], [])
        setup = "meson setup --reconfigure build -Dcuda=auto -Dkernel_archs="
        self.assertEqual(self.dev("test")[0], [setup + "90"])
        for command in ("bench", "test"):
            self.assertEqual(self.dev(command)[0], [])
        self.assertEqual(self.dev("build")[0], [setup + "80,90,100,120"])
        for command in ("bench", "test", "build"):
            self.assertEqual(self.dev(command)[0], [])

    def test_a_new_build_has_what_the_command_wants(self):
        for command, options in (("test", " -Dkernel_archs=90"), ("build", ""), ("setup", "")):
            with self.subTest(command):
                shutil.rmtree(os.path.join(self.folder, "build"), ignore_errors=True)
                self.assertEqual(self.dev(command)[0], ["meson setup build" + options])
                self.assertEqual(self.dev("bench")[0], [])

    def test_the_last_line_says_what_there_is(self):
        for command, word in (("test", "for sm_90 alone"), ("build", None)):
            self.dev(command)
            os.makedirs(os.path.join(self.folder, "build", "kernels", "cuda"), exist_ok=True)
            with open(os.path.join(self.folder, "build", "kernels", "cuda", "images.S"), "w",
                      encoding="utf-8"):
                pass
            last = self.dev("test")[1].splitlines()[-1]
            self.assertIn("kernels: host and CUDA (compiled by nvcc 12.0; ", last)
            self.assertEqual(word is not None, "for sm_90 alone" in last, last)

    def test_what_the_user_said_of_them_stays(self):
        for command in ("bench", "test"):
            with self.subTest(command):
                os.makedirs(os.path.join(self.folder, "build", "tools"))
                for name in ("build.ninja", "tools/gyre"):
                    shutil.copy(os.path.join(self.bin, "true"),
                                os.path.join(self.folder, "build", name))
                self.assertEqual(self.dev(command)[0], ["meson setup --reconfigure build"])
                self.assertEqual(self.dev(command)[0], [])
                shutil.rmtree(os.path.join(self.folder, "build"))


if __name__ == "__main__":
    unittest.main()
