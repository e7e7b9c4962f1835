"""A fresh clone of the last commit, and one command in it: a job of two ranks trains."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MINUTES = 30  # without ccache; it takes two to four


class Clone(unittest.TestCase):
    def test_a_fresh_clone_trains(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        clone = os.path.join(folder, "gyre")
        # As over a network: no file is shared, and none comes along that is not committed.
        subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, clone], check=True,
                       timeout=120)
        done = subprocess.run([os.path.join(clone, "tools", "dev"), "train"], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60 * MINUTES, check=False,
                              env={**os.environ, "GYRE_SOCKET_IFNAME": "lo"})
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        losses = [float(each) for each in
                  re.findall(r"\bstep +\d+ +loss +(\d+\.\d+)", done.stdout)]
        self.assertGreater(len(losses), 5, done.stdout[-4000:])
        self.assertLess(losses[-1], losses[0] / 2)
        print(f"loss {losses[0]} at first, {losses[-1]} at the end", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
